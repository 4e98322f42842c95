r"""Third step: read every run's lists end to end, at every depth, and seal their utility.

    python jobs/end_to_end.py --config jobs/demo/compare.yaml
    ray job submit --working-dir . -- python jobs/end_to_end.py --config nq.yaml \
        --out /shared/nq --cache_dir /shared/store

Works on what jobs/prepare.py has sealed; requests with a stored response are not run again.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config.job import JobConfig
from erag_ray.support.logs import say


def main(config: JobConfig) -> None:
    from erag_ray.inputs.stage import prepared

    inputs = prepared(config)

    # Ray and torch, which take seconds to import, come after the inputs are known to be there
    from erag_ray.extensions import further_lists, requested
    from erag_ray.inference.planning.plan import plan_stage, preview
    from erag_ray.inference.stage import run_stage
    from erag_ray.labels.end_to_end import score_end_to_end
    from erag_ray.labels.judgements import judge_outputs

    more = further_lists(config, inputs)
    plan = plan_stage(config, inputs, "end_to_end", single_document=False, end_to_end=True, more=more)
    say(*preview(plan, show=config.progress))
    finished = judge_outputs(config, inputs, run_stage(config, plan))
    score_end_to_end(config, inputs, finished)
    for extension in requested(config):
        extension.score(config, inputs, finished)
    say(f"utility at {', '.join(map(str, config.depths))} documents sealed in {config.out}")


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")

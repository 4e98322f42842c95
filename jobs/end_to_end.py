"""Third step: read every run's lists end to end, at every depth, and seal their utility.

    python jobs/end_to_end.py --config jobs/demo/compare.yaml
    ray job submit --working-dir . -- python jobs/end_to_end.py --config nq.yaml --out /shared/nq --store /shared/store

Works on what jobs/prepare.py has sealed; what the store holds is not read again.
"""

from __future__ import annotations

from erag_ray.config import JobConfig
from erag_ray.steps import run_job, say


def main(config: JobConfig) -> None:
    from erag_ray.steps.inputs import prepared

    inputs = prepared(config)

    # Ray and torch, which take seconds to import, come after the inputs are known to be there
    from erag_ray.steps.judgements import judge_outputs
    from erag_ray.steps.judging import use
    from erag_ray.steps.planning import end_to_end_lists, plan_stage, preview
    from erag_ray.steps.reading import run_stage

    plan = plan_stage(config, inputs, "end_to_end", alone=False, together=True)
    say(*preview(plan, show=config.progress))
    done = judge_outputs(config, inputs, run_stage(config, plan))
    use(config, inputs, end_to_end_lists(config, inputs), done.requests, done.responses, done.judgements)
    say(f"utility at {', '.join(map(str, config.depths))} documents sealed in {config.out}")


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")

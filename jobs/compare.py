"""The main job: from questions, passages and runs to the table of correlations.

    python jobs/compare.py --config jobs/demo/compare.yaml
    ray job submit --working-dir . -- python jobs/compare.py --config nq.yaml --out /shared/nq --cache_dir /shared/store

Makes the runs that ``retrievers`` name, then reads every distinct (question, document) alone and every list end to end,
in one pool; what the store holds is not read again. Seals its tables in --out and writes report.md there.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config import JobConfig
from erag_ray.logs import say


def main(config: JobConfig) -> None:
    from erag_ray.cli.reader_check import check_reader
    from erag_ray.inputs import dry_run_config, prepare
    from erag_ray.retrieve.stage import make_runs
    from erag_ray.track import check_tracker, track

    check_tracker(config)
    make_runs(config, check_reader)
    if config.dry_run:
        config = dry_run_config(config)
    inputs = prepare(config, check_reader)

    # Ray and torch, which take seconds to import, come after the inputs are known to be right
    from erag_ray.evaluate import evaluate, export
    from erag_ray.inference import estimate_cost, run_stage
    from erag_ray.labels import judge_outputs, label, preview_judgements, score_end_to_end
    from erag_ray.planning import plan_stage, preview
    from erag_ray.report import open_console, report

    plan = plan_stage(config, inputs, "compare", single_document=True, end_to_end=True)
    say(*inputs.notes)
    say(*preview(plan, show=config.progress))
    if config.dry_run:
        say(*preview_judgements(config, inputs, plan))
        for line in estimate_cost(config, inputs, plan):
            say(line)
        return
    finished = judge_outputs(config, inputs, run_stage(config, plan))
    label(config, inputs, finished)
    score_end_to_end(config, inputs, finished)
    evaluate(config, inputs)
    export(config, inputs)
    report(config, open_console())
    track(config)


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")

"""The main job: from questions, passages and runs to the table of correlations.

    python jobs/compare.py --config jobs/demo/compare.yaml
    ray job submit --working-dir . -- python jobs/compare.py --config nq.yaml --out /shared/nq --store /shared/store

Makes the runs that ``retrievers`` name, then reads every distinct (question, document) alone and every list end to end,
in one pool; what the store holds is not read again. Seals its tables in --out and writes report.md there.
"""

from __future__ import annotations

from erag_ray.config import JobConfig
from erag_ray.steps import run_job, say


def main(config: JobConfig) -> None:
    from erag_ray.steps.checks import check_reader
    from erag_ray.steps.inputs import aside, prepare
    from erag_ray.steps.retrieving import make_runs

    make_runs(config, check_reader)
    if config.dry_run:
        config = aside(config)
    inputs = prepare(config, check_reader)

    # Ray and torch, which take seconds to import, come after the inputs are known to be right
    from erag_ray.report import open_console
    from erag_ray.steps.judgements import judge_outputs, preview_judgements
    from erag_ray.steps.judging import evaluate, export, label, use
    from erag_ray.steps.planning import end_to_end_lists, plan_stage, preview
    from erag_ray.steps.reading import run_stage
    from erag_ray.steps.rehearsing import rehearse
    from erag_ray.steps.reporting import report

    plan = plan_stage(config, inputs, "compare", alone=True, together=True)
    say(*inputs.notes)
    say(*preview(plan, show=config.progress))
    if config.dry_run:
        say(*preview_judgements(config, inputs, plan))
        for line in rehearse(config, inputs, plan):
            say(line)
        return
    done = judge_outputs(config, inputs, run_stage(config, plan))
    label(config, inputs, done.values(inputs))
    use(config, inputs, end_to_end_lists(config, inputs), done.requests, done.responses, done.judgements)
    evaluate(config, inputs)
    export(config, inputs)
    report(config, open_console())


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")

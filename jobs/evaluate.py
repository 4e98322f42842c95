"""Last step: labels and utility -> measures, correlations, report. Needs neither Ray nor torch nor a GPU.

    python jobs/evaluate.py --config jobs/demo/compare.yaml

Works on what the other jobs have sealed: another measure, cut-off, statistic or confidence costs no reading.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config import JobConfig


def main(config: JobConfig) -> None:
    from erag_ray.analyses.evaluation import evaluate
    from erag_ray.analyses.export import export
    from erag_ray.errors import JobError
    from erag_ray.extensions import requested
    from erag_ray.inputs import prepared
    from erag_ray.report.console import open_console
    from erag_ray.report.stage import report

    extensions = requested(config)
    for extension in extensions:
        extension.check(config)
    inputs = prepared(config)
    failures = evaluate(config, inputs)
    export(config, inputs)
    report(config, open_console())
    for extension in extensions:
        extension.finish(config)
    if failures:
        raise JobError("; ".join(failures))


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")

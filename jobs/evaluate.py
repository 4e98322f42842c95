"""Last step: labels and utility -> measures, correlations, report. Needs neither Ray nor torch nor a GPU.

    python jobs/evaluate.py --config jobs/demo/compare.yaml

Works on what the other jobs have sealed: another measure, cut-off, statistic or confidence costs no reading.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config.job import JobConfig


def main(config: JobConfig) -> None:
    from erag_ray.comparison import finish_job
    from erag_ray.extensions import requested
    from erag_ray.inputs.stage import prepared

    for extension in requested(config):
        extension.check(config)
    finish_job(config, prepared(config))


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")

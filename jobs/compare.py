"""The main job: from questions, passages and runs to the table of correlations.

    python jobs/compare.py --config jobs/demo/compare.yaml
    ray job submit --working-dir . -- python jobs/compare.py --config nq.yaml --out /shared/nq --cache_dir /shared/store

Makes the runs that ``retrievers`` name, then reads every distinct (question, document) by itself, and every list end
to end, in one pool; requests with a stored response are not run again. Seals its tables in --out and writes the report.
The steps: erag_ray/comparison.py.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config.job import JobConfig


def main(config: JobConfig) -> None:
    from erag_ray.comparison import compare

    compare(config)


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")

"""First step: load, check and seal the inputs.

    python jobs/prepare.py --config jobs/demo/compare.yaml
    ray job submit --working-dir . -- python jobs/prepare.py --config nq.yaml --out /shared/nq --cache_dir /shared/store

Ends with code 2 and one message that names everything that is wrong with them.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config.job import JobConfig
from erag_ray.support.logs import say, warn


def main(config: JobConfig) -> None:
    from erag_ray.inputs.stage import prepare
    from erag_ray.retrieve.stage import make_runs

    make_runs(config)
    inputs = prepare(config)
    warn(*inputs.notes)
    lists = inputs.runs.select("run_id", "query_id").n_unique()
    counts = f"{inputs.queries.height:,} questions, {inputs.corpus.height:,} passages in use, {lists:,} lists"
    say(f"sealed in {config.out}: {counts} of {inputs.runs['run_id'].n_unique()} runs")


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")

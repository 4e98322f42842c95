"""How fast things are here: BM25, dense search, encoding, evaluation and reading, as ratios against named peers.

    python jobs/benchmark.py --sizes '[100000, 1000000]'
    python jobs/benchmark.py --parts '[measures, table_1]'
    python jobs/benchmark.py --parts '[readings]'

Times are of this machine and of whatever else it does meanwhile; only the ratios carry over. Needs rank-bm25.
"""

from __future__ import annotations

import pathlib

from erag_ray.benchmark import run_all
from erag_ray.config import BenchmarkConfig
from erag_ray.report import open_console, show, speed_grid
from erag_ray.steps import run_job, say


def main(config: BenchmarkConfig) -> None:
    table = run_all(config, say)
    place = pathlib.Path(config.out, "benchmark.parquet")
    table.write_parquet(place)
    show([speed_grid(table)], open_console())
    say(f"table: {place}")


if __name__ == "__main__":
    run_job(BenchmarkConfig, main, __doc__ or "")

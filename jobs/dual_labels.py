"""Is the best passage of the right document, and does it hold the answer? Dual labels (Park & Lim, 2025, Table 3).

    python jobs/dual_labels.py --config jobs/dual_labels.yaml
    ray job submit --working-dir . -- python jobs/dual_labels.py --config jobs/dual_labels.yaml --out /shared/dual

From KLUE-MRC's JSON (or any questions with gold pages) and the texts of pages to the table: pages are split, each
retriever gives its best passage, and both labels are counted.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config import DualLabelsConfig
from erag_ray.logs import say


def main(config: DualLabelsConfig) -> None:
    from erag_ray.papers.dual_stage import label_twice
    from erag_ray.report import open_console, show
    from erag_ray.retrieve.stage import retrieve

    runs = retrieve(config)
    say(*map(str, runs))
    show(label_twice(config, runs), open_console())


if __name__ == "__main__":
    run_job(DualLabelsConfig, main, __doc__ or "")

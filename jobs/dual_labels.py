"""Is the best passage of the right document, and does it hold the answer? Dual labels (Park & Lim, 2025, Table 3).

    python jobs/dual_labels.py --config jobs/dual_labels.yaml
    ray job submit --working-dir . -- python jobs/dual_labels.py --config jobs/dual_labels.yaml --out /shared/dual

From KLUE-MRC's JSON (or any questions with gold pages) and the texts of pages to the table: pages are split, each
retriever gives its best passage, and both labels are counted.
"""

from __future__ import annotations

from erag_ray.cli.run import run_extra

if __name__ == "__main__":
    run_extra("dual_labels", __doc__ or "")

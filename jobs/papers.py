"""The papers' tables and figures from finished jobs, next to the published numbers.

    python jobs/papers.py --config jobs/papers/papers.yaml
    ray job submit --working-dir . -- python jobs/papers.py --comparison /shared/papers/fid --out /shared/papers/report

Table 1, Figures 1 to 3 (pictures, and their data with intervals), the reproduction's table, and Table 3 of the
dual-label paper.
`make papers` runs the jobs before it, on a generated world.
"""

from __future__ import annotations

from erag_ray.cli.run import run_extra

if __name__ == "__main__":
    run_extra("papers", __doc__ or "")

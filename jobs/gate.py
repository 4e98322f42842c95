"""Whether a candidate serves the reader worse than a baseline, by an exit code: 0 passed, 3 failed, 4 not settled.

    python jobs/gate.py --baseline results/nq --baseline_run bm25 --candidate results/new --margin 0.02
    python jobs/gate.py --config jobs/gate/gate.yaml

Compares end-to-end scores of the same questions in the sealed tables of finished jobs. Needs neither Ray nor torch.
"""

from __future__ import annotations

from erag_ray.cli.run import run_extra

if __name__ == "__main__":
    run_extra("gate", __doc__ or "")

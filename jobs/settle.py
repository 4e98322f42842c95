r"""Find the better of two runs, with as few responses as possible.

    python jobs/settle.py --config jobs/demo/compare.yaml --compare '[bm25, bm25_lead]' --cutoff 5
    ray job submit --working-dir . -- python jobs/settle.py --config nq.yaml --compare '[bm25, contriever]' \
        --out /shared/nq --cache_dir /shared/store

Works on what jobs/prepare.py has sealed, one dataset. Reads a sample of the two lists' documents, most of all those
that the difference hangs on, for some questions after others in random order; after each look it gives an interval that
holds however often one looks. Stops when 0 lies outside it, or when the difference is known to within
--equivalence_margin. Seals the table interim_analyses. What the store holds is not read again.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.logs import say
from erag_ray.sequential_test.config import SettleConfig


def main(config: SettleConfig) -> None:
    from erag_ray.inputs import prepared

    inputs = prepared(config)
    say(*inputs.notes)

    # Ray and torch, which take seconds to import, come after the inputs are known to be there
    from erag_ray.sequential_test.stage import settle

    settle(config, inputs)
    say(f"interim analyses sealed in {config.out}")


if __name__ == "__main__":
    run_job(SettleConfig, main, __doc__ or "")

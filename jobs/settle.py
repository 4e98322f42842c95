r"""Find the best of two or more runs, with as few responses as possible.

    python jobs/settle.py --config jobs/demo/compare.yaml --compare '[bm25, bm25_lead]' --cutoff 5
    ray job submit --working-dir . -- python jobs/settle.py --config nq.yaml --compare '[bm25, contriever]' \
        --out /shared/nq --cache_dir /shared/store

Works on what jobs/prepare.py has sealed. Reads a sample of the documents in the lists, for questions in random order,
most often those with a large weight in the differences. After each look it gives intervals that hold however often one
looks, and stops when one run is better than the others, or the differences are known to within --equivalence_margin.
--auxiliary names a cheap label of all documents, which narrows the intervals. Seals the table interim_analyses. Cached
responses are not read again.
"""

from __future__ import annotations

from erag_ray.cli.run import run_extra

if __name__ == "__main__":
    run_extra("settle", __doc__ or "")

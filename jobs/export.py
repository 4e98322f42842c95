"""Labels of a finished job as a dataset with a card, and as training data for retrievers.

    python jobs/export.py --job results/nq --out results/nq-labels
    python jobs/export.py --job results/nq --out results/nq-labels --num_negatives 4 --harmful_only true

Writes Parquet files and README.md, which datasets.load_dataset(out, "labels") and (out, "training") read. Rows of the
training data are anchor, positive, negative_1, ... as sentence-transformers takes them; no question is in two splits.
Needs neither Ray nor torch.
"""

from __future__ import annotations

from erag_ray.cli.run import run_extra

if __name__ == "__main__":
    run_extra("export", __doc__ or "")

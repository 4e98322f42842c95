"""The job `export` of the command line."""

from erag_ray.cli.run import Job
from erag_ray.extras.label_export.config import ExportConfig


def main(config: ExportConfig) -> None:
    """Labels of a finished job as a dataset with a card, and as training data for retrievers.

        erag-ray export --job results/nq --out results/nq-labels
        erag-ray export --job results/nq --out results/nq-labels --num_negatives 4 --harmful_only true

    Writes Parquet files and README.md, which datasets.load_dataset(out, "labels") and (out, "training") read. Rows
    of the training data are anchor, positive, negative_1, ... as sentence-transformers takes them; no question is
    in two splits. Needs neither Ray nor torch.
    """
    from erag_ray.extras.label_export.stage import export

    export(config)


JOB = Job(ExportConfig, main)

"""The job `dual_labels` of the command line."""

from erag_ray.cli.run import Job
from erag_ray.extras.papers.config import DualLabelsConfig
from erag_ray.support.logs import say


def main(config: DualLabelsConfig) -> None:
    """Is the best passage of the right document, and does it hold the answer? Dual labels (Park & Lim, 2025, Table 3).

        erag-ray dual_labels --config jobs/dual_labels.yaml

    From KLUE-MRC's JSON (or any questions with gold pages) and the texts of pages to the table: pages are split, each
    retriever gives its best passage, and both labels are counted.
    """
    from erag_ray.extras.papers.dual_labels import label_twice
    from erag_ray.report.console import open_console, show
    from erag_ray.retrieve.stage import retrieve

    runs = retrieve(config)
    say(*map(str, runs))
    show(label_twice(config, runs), open_console())


JOB = Job(DualLabelsConfig, main)

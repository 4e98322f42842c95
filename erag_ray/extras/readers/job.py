"""The job `readers` of the command line."""

from erag_ray.cli.run import Job
from erag_ray.extras.readers.config import ReadersConfig


def main(config: ReadersConfig) -> None:
    """Does the best retriever depend on the reader? A comparison for each of several readers, then of the readers.

        erag-ray readers --config readers.yaml

    Runs erag-ray compare for each of --readers, in a folder of --out, where what is stored is not requested again. Then
    tests whether differences of runs differ between readers, how far they agree on the order of the runs, and whose
    labels predict whose answers, and writes report.md and the page in --out.
    """
    from erag_ray.extras.readers.stage import compare_readers
    from erag_ray.report.console import open_console

    compare_readers(config, open_console())


JOB = Job(ReadersConfig, main)

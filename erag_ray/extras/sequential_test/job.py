"""The job `settle` of the command line."""

from erag_ray.cli.run import Job
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.support.logs import say, warn


def main(config: SettleConfig) -> None:
    """Find the best of two or more runs, with as few responses as possible.

        erag-ray settle --config jobs/demo/compare.yaml --compare '[bm25, bm25_lead]' --cutoff 5

    Works on what `erag-ray prepare` has sealed. Reads a sample of the documents in the lists, for questions in
    random order, most often those with a large weight in the differences. After each look it gives intervals that
    hold however often one looks, and stops when one run is better than the others, or the differences are known to
    within --equivalence_margin. --auxiliary names a cheap label of all documents, which narrows the intervals.
    Seals the table interim_analyses. Cached responses are not read again.
    """
    from erag_ray.inputs.stage import prepared

    inputs = prepared(config)
    warn(*inputs.notes)

    # Ray and torch, which take seconds to import, come after the inputs are known to be there
    from erag_ray.extras.sequential_test.stage import settle

    settle(config, inputs)
    say(f"interim analyses sealed in {config.out}")


JOB = Job(SettleConfig, main)

"""The job `gate` of the command line."""

from erag_ray.cli.run import Job
from erag_ray.extras.gate.config import GateConfig


def main(config: GateConfig) -> int:
    """Whether a candidate serves the reader worse than a baseline, by an exit code: 0 passed, 3 failed, 4 not settled.

        erag-ray gate --baseline results/nq --baseline_run bm25 --candidate results/new --margin 0.02
        erag-ray gate --config jobs/gate/gate.yaml

    Compares end-to-end scores of the same questions in the sealed tables of finished jobs. Needs neither Ray nor
    torch.
    """
    from erag_ray.extras.gate.stage import gate
    from erag_ray.report.console import open_console

    return gate(config, open_console())


JOB = Job(GateConfig, main)

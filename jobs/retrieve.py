"""Make runs: questions and passages (or the pages to make them from) to ranked lists.

    python jobs/retrieve.py --config retrieval.yaml
    ray job submit --working-dir . -- python jobs/retrieve.py --config retrieval.yaml

The files under runs/ and the folder corpus/ of --out go into the config of jobs/compare.py. Needs no torch.
"""

from __future__ import annotations

from erag_ray.config import RetrieveConfig
from erag_ray.steps import run_job, say
from erag_ray.steps.retrieving import retrieve


def main(config: RetrieveConfig) -> None:
    say(*map(str, retrieve(config)))


if __name__ == "__main__":
    run_job(RetrieveConfig, main, __doc__ or "")

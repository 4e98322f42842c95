"""Make runs: questions and passages (or the pages to make them from) to ranked lists.

    python jobs/retrieve.py --config jobs/demo/runs.yaml
    ray job submit --working-dir . -- python jobs/retrieve.py --config retrieval.yaml --out /shared/retrieval

The files under runs/ and the folder corpus/ of --out go into the config of jobs/compare.py, which can also make runs
itself. Ends with what the runs find: gold pages, answers, KILT's R-precision and recall.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.support.logs import say


def main(config: RetrieveConfig) -> None:
    from erag_ray.analyses.retrieval_measures import find_retrieval_measures
    from erag_ray.report.console import open_console, show
    from erag_ray.retrieve.stage import retrieve

    runs = retrieve(config)
    say(*map(str, runs))
    show(find_retrieval_measures(config, runs), open_console())


if __name__ == "__main__":
    run_job(RetrieveConfig, main, __doc__ or "")

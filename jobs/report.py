"""The report again, from any finished job's folder: the verdict, report.md and the page. Reads only sealed tables.

    python jobs/report.py --out results/nq
    python jobs/report.py --out results/nq --verbose true

Needs neither Ray nor torch, nor the job's inputs. Tables that are not there, or were changed since they were sealed,
are left out and named.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config.report import ReportConfig


def main(config: ReportConfig) -> None:
    from erag_ray.report.console import open_console
    from erag_ray.report.stage import report

    report(config, open_console())


if __name__ == "__main__":
    run_job(ReportConfig, main, __doc__ or "")

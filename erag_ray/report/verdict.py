"""The verdict: the answer of every dataset, and the analyses' findings in one order.

Whether one run is better than another is decided in `erag_ray.analyses.standing`, which states the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from erag_ray.analyses.answer import answer
from erag_ray.analyses.parts.model import DatasetVerdict, Finding, Topic, Verdict
from erag_ray.analyses.standing import Standing
from erag_ray.report.leaderboard import ranking


def verdict_of(
    question: str, datasets: Iterable[tuple[Standing | None, Sequence[Finding]]], findings: Sequence[Finding]
) -> Verdict:
    """Return the verdict of a report.

    Args:
        question: which retriever serves which reader best.
        datasets: of each dataset its runs, and its findings; one without any utility has no verdict.
        findings: about the whole job.
    """
    return Verdict(
        question=question,
        datasets=tuple(
            DatasetVerdict(
                dataset=standing.dataset,
                answer=answer(standing),
                findings=tuple(sorted(of_dataset, key=lambda one: get_args(Topic).index(one.topic))),
                ranking=ranking(standing),
                score=standing.score,
                depth=standing.depth,
                num_queries=max(row["num_queries"] for row in standing.means.values()),
            )
            for standing, of_dataset in datasets
            if standing is not None
        ),
        findings=tuple(sorted(findings, key=lambda one: one.topic != "cost")),
    )

"""Small reports and their pages, some of them hostile."""

from __future__ import annotations

from erag_ray.analyses.parts.model import DatasetVerdict, Figure, Finding, Report, Section, Table, Verdict

HOSTILE = "</script><img src=x onerror=alert(1)> \u2028\u2029 \u202eright to left\u202c & <b>bold</b>"


def report_of(title: str = "Which retriever?", *parts: Table | Figure) -> Report:
    finding = Finding(topic="certainty", text="not settled: 412 questions would be needed", is_warning=True)
    verdict = DatasetVerdict(dataset="nq", answer="bm25 serves the reader best", findings=(finding,))
    return Report(
        title=title,
        verdict=Verdict(question="Which retriever serves the reader best?", datasets=(verdict,)),
        sections=(Section(name="runs", title="Runs", parts=parts),),
        warnings=("half of the outputs are empty",),
        notes=("two questions have no gold page",),
    )

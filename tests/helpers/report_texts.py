"""Reports of given tables, and what is printed of them."""

import dataclasses
import io
from collections.abc import Sequence

import polars as pl
import rich.console
from evaluated import comparisons, contrasts, correlations, means, measured, numbered, settings, used
from given_results import configured, results

from erag_ray.analyses.contract import Results
from erag_ray.analyses.parts.model import DatasetVerdict, Finding, Report, Verdict
from erag_ray.report.build import build_report
from erag_ray.report.console import print_report


def results_of(x: pl.DataFrame, y: pl.DataFrame, asked: pl.DataFrame) -> Results:
    given = (x, y, asked, settings())
    return results(
        means=means(*given),
        correlations=correlations(*given),
        comparisons=comparisons(*given),
        contrasts=contrasts(*given),
    )


def made_report(given: Results) -> Report:
    made = build_report(given)
    assert not made.failures
    return made


def made_up(**changes: object) -> Results:
    columns = {("r", "A", 2): [0, 1, 1, 0], ("r", "B", 2): [0, 0, 1, 0]}
    changed = {**columns, **changes.get("utility", {})}  # type: ignore[dict-item]
    return results_of(measured(columns), used(changed), numbered(4))


def results_with(name: str) -> Results:
    """Results of a dataset, an annotator and a run that are all called ``name``, beside a run B."""
    columns = {("r", name, 2): [0, 1, 1, 0], ("r", "B", 2): [0, 0, 1, 0]}
    x, y = measured(columns, annotator=name), used(columns)
    asked = numbered(4).with_columns(dataset=pl.lit(name))
    made = configured(results_of(x, y, asked), labels={"reader": {"kind": name}, "notes": [name]})
    return dataclasses.replace(made, missing=(name,))


def report_with(name: str) -> Report:
    """A report whose every text is the name: title, verdict, warnings and notes."""
    made = made_report(results_with(name))
    findings = tuple(Finding(topic="run", text=name, is_warning=flag) for flag in (True, False))
    said = Verdict(
        question=name,
        datasets=(DatasetVerdict(dataset=name, answer=name, findings=findings),),
        findings=findings,
    )
    return dataclasses.replace(made, title=name, verdict=said, warnings=(name,))


def printed(made: Report, width: int, *, verbose: bool = False, locations: Sequence[str] = ()) -> str:
    """What a console of this width shows."""
    out = io.StringIO()
    print_report(made, rich.console.Console(file=out, width=width), verbose=verbose, locations=locations)
    return out.getvalue()


def spoken(num_datasets: int, num_findings: int, words: int) -> Report:
    """A report with a verdict of so many datasets and findings, each of so many words."""
    text = " ".join(["word"] * words)
    datasets = tuple(
        DatasetVerdict(
            dataset=f"dataset{number}",
            answer=f"answer {number} {text}",
            findings=tuple(
                Finding(topic="trust", text=f"finding {number}.{place} {text}", is_warning=place == 1)
                for place in range(num_findings)
            ),
        )
        for number in range(num_datasets)
    )
    said = Verdict(
        question=f"question {text}", datasets=datasets, findings=(Finding(topic="cost", text="it cost this"),)
    )
    return dataclasses.replace(made_report(made_up()), verdict=said)


def lines_after_the_verdict(text: str) -> int:
    """Lines from the first heading after the title on."""
    return text.partition("\n## ")[2].count("\n") + 1

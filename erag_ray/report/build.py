"""Build the report from loaded results: the analyses' tables, figures and findings, in reading order. Pure."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import get_args

from erag_ray.analyses.answer import answer
from erag_ray.analyses.comparisons import COMPARISONS
from erag_ray.analyses.contract import SECTIONS, Analysis, Results, View
from erag_ray.analyses.every import every_analysis
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.parts import model
from erag_ray.analyses.parts.shapes import part_name
from erag_ray.analyses.standing import Standing, standing
from erag_ray.data.runs.references import END_TO_END
from erag_ray.report.leaderboard import ranking
from erag_ray.store.schemas import GIVEN

logger = logging.getLogger(__name__)


def build_report(results: Results) -> model.Report:
    """Return the report of one job: the verdict, then sections by dataset, over all datasets, published, costs."""
    views = views_of(results)
    results = replace(results, rankings={view.dataset: view.runs for view in views})
    of_datasets: dict[str, list[model.Part]] = {view.dataset: [] for view in views}
    of_all: list[tuple[str, model.Part]] = []
    failed: list[str] = []
    for analysis in every_analysis():
        for view in views:
            of_datasets[view.dataset] += _shown(analysis, analysis.show, view, failed)
        of_all += [(analysis.section, part) for part in _shown(analysis, analysis.show_all, results, failed)]
    sections = [
        model.Section(name=part_name("dataset", name), title=name, parts=_drawn(parts))
        for name, parts in of_datasets.items()
    ]
    sections += [
        model.Section(name=key, title=title, parts=_drawn(part for section, part in of_all if section == key))
        for key, title in SECTIONS.items()
    ]
    every_note = [part for _, part in of_all if isinstance(part, model.Note)]
    plain = [note.text for note in every_note if not note.is_warning]
    missing = (*results.missing, *failed)
    of_job = _findings(part for _, part in of_all)
    of_job += [model.Finding(topic="missing", text=line, is_warning=True) for line in missing]
    return model.Report(
        title=title_of(results),
        verdict=model.Verdict(
            question=title_of(results),
            datasets=tuple(
                _verdict(view.standing, _findings(of_datasets[view.dataset]))
                for view in views
                if view.standing
            ),
            findings=tuple(sorted(of_job, key=lambda one: one.topic != "cost")),
        ),
        sections=tuple(section for section in sections if section.parts),
        warnings=tuple(note.text for note in every_note if note.is_warning),
        notes=(*missing, *results.notes, *plain),
        failures=tuple(failed),
    )


def _verdict(standing: Standing, findings: Sequence[model.Finding]) -> model.DatasetVerdict:
    """Return the answer of a dataset, and the analyses' findings in one order."""
    return model.DatasetVerdict(
        dataset=standing.dataset,
        answer=answer(standing),
        findings=tuple(sorted(findings, key=lambda one: get_args(model.Topic).index(one.topic))),
        ranking=ranking(standing),
        score=standing.score,
        depth=standing.depth,
        num_queries=standing.num_estimated or max(row["num_queries"] for row in standing.means.values()),
    )


def views_of(results: Results) -> list[View]:
    means, comparisons = results[MEANS], results[COMPARISONS]
    datasets = means["dataset"].unique().sort().to_list()
    views = []
    for dataset in datasets:
        ranked = standing(means, comparisons, dataset, results.alpha)
        runs = [*ranked.runs, *ranked.not_judged] if ranked else []
        scored = means.filter(dataset=dataset, annotator=END_TO_END).drop_nulls("mean")["run_id"].unique()
        views.append(
            View(
                results=results,
                dataset=dataset,
                runs=runs,
                scored=[run for run in runs if run in scored],
                standing=ranked,
                is_only=len(datasets) == 1,
            )
        )
    return views


def title_of(results: Results) -> str:
    reader = results.reader
    if reader.get("kind") == GIVEN.name:
        return "Which system answers best?"
    words = ("the reader", reader.get("kind"), reader.get("model"))
    without = "" if reader.get("titles", True) else " without titles"
    return f"Which retriever serves {' '.join(str(word) for word in words if word)}{without} best?"


def _shown(
    analysis: Analysis, show: Callable[..., Iterable[model.Part]], of: Results | View, failed: list[str]
) -> list[model.Part]:
    """Return what an analysis shows; if it raises an error, nothing, and a line is added to ``failed``."""
    # one that fails, maybe from outside the package, must not take the others with it
    try:
        return [
            replace(part, group=analysis.group) if isinstance(part, model.Table | model.Figure) else part
            for part in show(of)
        ]
    except Exception as error:
        logger.debug("an analysis failed", exc_info=True)
        where = f"{of.dataset}: " if isinstance(of, View) else ""
        failed.append(f"{where}{show.__module__}.{show.__qualname__} failed: {error!r}")
        return []


def _drawn(parts: Iterable[model.Part]) -> tuple[model.Table | model.Figure, ...]:
    return tuple(part for part in parts if isinstance(part, model.Table | model.Figure))


def _findings(parts: Iterable[model.Part]) -> list[model.Finding]:
    return [part for part in parts if isinstance(part, model.Finding)]

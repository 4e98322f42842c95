"""Write the page: its HTML, and shards of questions as files that a browser loads from disk on demand."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.resources
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from erag_ray.analyses.cells import CELL_WORDS, CELLS_MEANING
from erag_ray.analyses.parts.model import Figure, Report, Table
from erag_ray.report.page.boards import boards
from erag_ray.report.page.payload import QuestionIndex, column_data, packed, part_data, question_data
from erag_ray.report.page.questions import Questions
from erag_ray.store.folder import Folder

FOLDER = "report"
SHARD_BYTES = 500_000
"""JSON bytes in a file of questions before a new file starts; gzip shrinks them to a tenth to a third."""


@dataclass(frozen=True, kw_only=True)
class Charts:
    """Chart functions: the Vega-Lite spec of a figure, and the script with Vega, Vega-Lite and vega-embed."""

    vega: Callable[[Figure], Mapping[str, Any]]
    javascript_bundle: Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options of a page."""

    single_file: bool = False
    """Whether to write everything into one HTML file."""


def write_page(
    folder: Folder,
    report: Report,
    questions: Questions | None = None,
    options: PageOptions | None = None,
    charts: Charts | None = None,
) -> str:
    """Write ``report/index.html`` and the files next to it, and delete those of an earlier report.

    Args:
        folder: of the job.
        report: the report.
        questions: for the view of single questions; None: no such view.
        options: options of the page.
        charts: functions that draw figures; None: figures are shown as tables.

    Returns:
        The path of the page.
    """
    options = options or PageOptions()
    folder.delete_folder(FOLDER)
    index = QuestionIndex(questions)
    shards = _shards(questions, index) if questions else iter(())
    inline = list(shards) if options.single_file else []
    for number, text in enumerate(shards):
        folder.write_bytes(f'shard({number},"{text}");\n'.encode(), FOLDER, "questions", f"{number:04}.js")
    specs = _specs(report, charts)
    bundle = charts.javascript_bundle() if charts and specs else ""
    if bundle and not options.single_file:
        folder.write_bytes(bundle.encode(), FOLDER, "charts.js")
    data = _data(report, questions, index, specs)
    html = _html(report, data, bundle, inline, is_single=options.single_file)
    folder.write_bytes(html.encode("utf-8", "replace"), FOLDER, "index.html")
    _tidy(folder)
    return "/".join([folder.address.rstrip("/"), FOLDER, "index.html"])


def _tidy(folder: Folder) -> None:
    """Delete empty folders of unfinished files, since people share the folder."""
    for names in (("_unfinished",), ("questions", "_unfinished")):
        folder.prune(FOLDER, *names)


def _shards(questions: Questions, index: QuestionIndex) -> Iterator[str]:
    """Yield packed records of consecutive questions, and add each question to the index."""
    records: list[dict[str, Any]] = []
    number = size = 0
    for question in questions:
        record = question_data(question)
        index.add(question, number, len(records))
        records.append(record)
        size += len(json.dumps(record, default=str))
        if size >= SHARD_BYTES:
            yield packed(records)
            records, size, number = [], 0, number + 1
    if records:
        yield packed(records)


def _specs(report: Report, charts: Charts | None) -> dict[str, Mapping[str, Any]]:
    figures = [part for section in report.sections for part in section.parts if isinstance(part, Figure)]
    return {figure.name: charts.vega(figure) for figure in figures} if charts else {}


def _data(
    report: Report, questions: Questions | None, index: QuestionIndex, specs: Mapping[str, Mapping[str, Any]]
) -> str:
    tables, figures = part_data((part for section in report.sections for part in section.parts), specs)
    about = None
    if questions is not None:
        about = {
            "runs": list(questions.runs),
            "columns": column_data(questions),
            "depths": list(questions.depths),
            "shown": questions.options.depth,
            "texts": questions.options.texts,
            "threshold": questions.options.threshold,
            "prompts": questions.options.prompts,
            "cells": {name: [CELL_WORDS[name], text] for name, text in CELLS_MEANING.items()},
            "index": index.data(),
        }
    return packed({"tables": tables, "figures": figures, "questions": about})


def _html(report: Report, data: str, bundle: str, shards: list[str], *, is_single: bool) -> str:
    script, style = _asset("page.js"), _asset("page.css")
    hashes = [_sha256(script), *([_sha256(bundle)] if bundle and is_single else [])]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset("page.html.j2")).render(
        report=report,
        boards=boards(report.verdict),
        policy=_policy(hashes, may_load=not is_single),
        data=data,
        script=script,
        style=style,
        bundle=_packed_text(bundle) if bundle and is_single else "",
        has_charts=bool(bundle),
        shards=shards,
        is_table=lambda part: not isinstance(part, Figure),
        grouped=grouped,
    )


def grouped(parts: Sequence[Table | Figure]) -> list[tuple[str, list[Table | Figure]]]:
    """Return parts by the headings under which they are folded, in reading order."""
    return [(name, list(of_name)) for name, of_name in itertools.groupby(parts, lambda part: part.group)]


def _policy(hashes: list[str], *, may_load: bool) -> str:
    """Return a Content-Security-Policy: these scripts and the files next to the page, no network, no eval."""
    scripts = " ".join(
        [*(f"'sha256-{digest}'" for digest in hashes), *(["'self'", "file:"] if may_load else [])]
    )
    # Vega sets inline styles
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _packed_text(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()

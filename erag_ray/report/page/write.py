"""Write the page: its HTML, and shards of questions as files that a browser loads from disk on demand."""

import base64
import gzip
import hashlib
import importlib.resources
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2

from erag_ray.analyses.cells import CELL_WORDS, CELLS_MEANING
from erag_ray.analyses.parts.model import Figure, Report
from erag_ray.analyses.parts.shapes import figures_of, tables_of
from erag_ray.report.charts import javascript_bundle, vega
from erag_ray.report.leaderboard import boards
from erag_ray.report.page.payload import figure_data, index_data, packed, table_data
from erag_ray.report.page.questions import Questions, Record
from erag_ray.store.folder import Folder

FOLDER = "report"
SHARD_BYTES = 500_000
"""JSON bytes in a file of questions before a new file starts; gzip shrinks them to a tenth to a third."""


def write_page(
    folder: Folder, report: Report, questions: Questions | None = None, *, single_file: bool = False
) -> str:
    """Write ``report/index.html`` and the files next to it, and delete those of an earlier report; return its path.

    With ``questions`` it has a view of single ones. ``single_file``: write everything into one HTML file.
    """
    folder.delete_folder(FOLDER)
    positions: list[tuple[int, int]] = []
    shards = _shards(questions, positions) if questions else iter(())
    inline = list(shards) if single_file else []
    for number, text in enumerate(shards):
        folder.write_bytes(f'shard({number},"{text}");\n'.encode(), FOLDER, "questions", f"{number:04}.js")
    specs = {figure.name: vega(figure) for figure in figures_of(report)}
    bundle = javascript_bundle() if specs else ""
    if bundle and not single_file:
        folder.write_bytes(bundle.encode(), FOLDER, "charts.js")
    html = _html(report, _data(report, questions, positions, specs), bundle, inline, is_single=single_file)
    folder.write_bytes(html.encode("utf-8", "replace"), FOLDER, "index.html")
    # people share the folder
    for unfinished in (("_unfinished",), ("questions", "_unfinished")):
        folder.prune(FOLDER, *unfinished)
    return "/".join([folder.address.rstrip("/"), FOLDER, "index.html"])


def _shards(questions: Questions, positions: list[tuple[int, int]]) -> Iterator[str]:
    """Yield packed records of consecutive questions, and add the position of each: its shard, and its place there."""
    records: list[Record] = []
    number = size = 0
    for record in questions:
        positions.append((number, len(records)))
        records.append(record)
        size += len(json.dumps(record, default=str))
        if size >= SHARD_BYTES:
            yield packed(records)
            records, size, number = [], 0, number + 1
    if records:
        yield packed(records)


def _data(
    report: Report,
    questions: Questions | None,
    positions: Sequence[tuple[int, int]],
    specs: Mapping[str, Mapping[str, Any]],
) -> str:
    tables = [table_data(table) for table in tables_of(report)]
    figures = [figure_data(figure, specs.get(figure.name)) for figure in figures_of(report)]
    about = None
    if questions is not None:
        about = {
            "runs": list(questions.runs),
            "columns": [column._asdict() for column in questions.columns],
            "answers": questions.options.num_answers,
            "shown": questions.options.depth,
            "texts": questions.options.texts,
            "threshold": questions.options.threshold,
            "prompts": questions.options.prompts,
            "cells": {name: [CELL_WORDS[name], text] for name, text in CELLS_MEANING.items()},
            "index": index_data(questions, positions),
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
        bundle=base64.b64encode(gzip.compress(bundle.encode(), mtime=0)).decode()
        if bundle and is_single
        else "",
        shards=shards,
        is_table=lambda part: not isinstance(part, Figure),
        grouped=lambda parts: [
            (name, list(of_name)) for name, of_name in itertools.groupby(parts, lambda part: part.group)
        ],
    )


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

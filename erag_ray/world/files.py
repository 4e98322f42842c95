"""The world on disk: kilt_knowledgesource.json, and TASK-train-kilt.jsonl and TASK-dev-kilt.jsonl for five tasks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from erag_ray import __version__
from erag_ray.store import UNFINISHED, Folder, whole_manifest
from erag_ray.world.config import WorldConfig
from erag_ray.world.district import make_district
from erag_ray.world.pages import Page, make_pages
from erag_ray.world.tasks import TASKS, make_records

KNOWLEDGE_SOURCE = "kilt_knowledgesource.json"
MANIFEST = "manifest.json"
WINDOW = 128
"""Districts that are made before they are written: what is in memory at most."""

Lines = dict[str, list[str]]
"""File -> its lines."""


def file_name(task: str, dev: bool) -> str:
    """As KILT names its task files."""
    return f"{task}-{'dev' if dev else 'train'}-kilt.jsonl"


def write_world(
    config: WorldConfig, on_progress: Callable[[int], None] = lambda done: None
) -> dict[str, int]:
    """Write the world's files and, last, their manifest; a finished world of the same settings is left as it is.

    Args:
        config: seed, size and settings.
        on_progress: is called with the number of districts done.

    Returns:
        The number of lines in every file.
    """
    folder = Folder(config.out)
    settings = _settings(config)
    manifest = whole_manifest(folder, name=MANIFEST, form={"settings": dict, "lines": dict})
    if manifest is not None and manifest["settings"] == settings:
        counts: dict[str, int] = manifest["lines"]
        return counts
    folder.delete(MANIFEST)
    lines = _write_files(config, folder, on_progress)
    content = {"settings": settings, "lines": lines}
    folder.write_bytes(json.dumps(content, indent=2).encode(), MANIFEST)
    return lines


def _settings(config: WorldConfig) -> dict[str, Any]:
    """All that the files depend on."""
    values = dataclasses.asdict(config)
    return {
        "version": __version__,
        **{key: value for key, value in values.items() if key not in ("out", "num_processes")},
    }


def _write_files(config: WorldConfig, folder: Folder, on_progress: Callable[[int], None]) -> dict[str, int]:
    names = [KNOWLEDGE_SOURCE, *(file_name(task, dev) for task in TASKS for dev in (False, True))]
    counts: Counter[str] = Counter(dict.fromkeys(names, 0))
    folder.filesystem.create_dir(folder.at(UNFINISHED), recursive=True)
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(folder.filesystem.open_output_stream(folder.at(UNFINISHED, name)))
            for name in names
        }
        for done, lines in enumerate(_districts(config), 1):
            for name, own in lines.items():
                files[name].write("".join(own).encode())
                counts[name] += len(own)
            on_progress(done)
    for name in names:
        folder.move((UNFINISHED, name), (name,))
    folder.delete_folder(UNFINISHED)
    return dict(counts)


def _districts(config: WorldConfig) -> Iterator[Lines]:
    """Every district's lines in order, made by several processes a window at a time."""
    num_processes = min(config.num_processes or os.cpu_count() or 1, config.num_districts)
    make = functools.partial(district_lines, config)
    if num_processes == 1:
        yield from map(make, range(config.num_districts))
        return
    # a process started anew, not forked: the parent may hold threads
    with multiprocessing.get_context("spawn").Pool(num_processes) as pool:
        for start in range(0, config.num_districts, WINDOW):
            window = range(start, min(start + WINDOW, config.num_districts))
            yield from pool.map(make, window, chunksize=max(1, WINDOW // (4 * num_processes)))


def district_lines(config: WorldConfig, number: int) -> Lines:
    """One district's pages and records, as lines of the world's files."""
    district = make_district(config, number)
    pages = make_pages(config, district)
    lines = {KNOWLEDGE_SOURCE: [_line(page_record(page)) for page in pages]}
    count = num_questions(config, number)
    for task in TASKS:
        records = make_records(config, district, pages, task, count)
        lines[file_name(task, district.dev)] = [_line(record) for record in records]
    return lines


def num_questions(config: WorldConfig, number: int) -> int:
    """How many questions of each task a district gives, so that all of its part give the same, or one more or less."""
    place, all_of_part = config.place_in_part(number)
    share = config.questions_per_district
    if config.max_questions is not None:
        share = min(share, config.max_questions / all_of_part)
    return int((place + 1) * share + 1e-9) - int(place * share + 1e-9)


def page_record(page: Page) -> dict[str, Any]:
    """A page as a line of KILT's knowledge source: the first paragraph of its text is the title."""
    return {
        "_id": page.page_id,
        "wikipedia_id": page.page_id,
        "wikipedia_title": page.title,
        "text": [page.title, *page.paragraphs],
        "anchors": [],
        "categories": "",
    }


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"

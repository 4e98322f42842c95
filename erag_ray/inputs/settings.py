"""What can be wrong with a config, found before anything is read or overwritten. Used by every step that needs it."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

import polars as pl
import pyarrow as pa

from erag_ray.agreement import STATISTICS, agree
from erag_ray.annotators import annotator_named, asked_measures, kind_of_labels
from erag_ray.config import KINDS, JobConfig, ReaderConfig
from erag_ray.errors import InputError
from erag_ray.files import Diagnostics
from erag_ray.measures import canonical_name, check_measures
from erag_ray.model_sources import find_model
from erag_ray.registry import find
from erag_ray.runs import REFERENCE_NAMES, REFERENCES
from erag_ray.schemas import CORPUS, RUNS
from erag_ray.scores import score_named
from erag_ray.store import Folder


def check_runs(config: JobConfig, diagnostics: Diagnostics) -> None:
    """There are runs, and their names can stand in tables beside those of the reference readings."""
    if not config.runs:
        diagnostics.error("no runs", "runs: no run is given; name at least one ranked list file")
    for run_id in config.runs:
        if not run_id.strip():
            diagnostics.error("run names", f"runs: the name {run_id!r} is blank")
        if run_id in REFERENCES or run_id in REFERENCE_NAMES.values():
            diagnostics.error(
                "run names", f"runs: the name {run_id} is taken by the reader's reference readings"
            )


def check_places(places: Mapping[str, str], diagnostics: Diagnostics) -> None:
    """The folders that these keys name can be written to."""
    for key, place in places.items():
        probe = f"probe-{uuid.uuid4().hex}"
        try:
            folder = Folder(place)
            folder.write_bytes(b"", probe)
            folder.delete(probe)
        except (OSError, ValueError, pa.ArrowException) as error:
            diagnostics.error(f"config key {key}", f"{key}: cannot write to {place}: {error}")


def check_not_own(config: JobConfig, diagnostics: Diagnostics) -> None:
    """No input is a table of this job's ``out``: sealing the inputs would overwrite it."""
    out = _path_of(config.out)
    for key, table, paths in (("passages", CORPUS, config.passages), ("runs", RUNS, config.runs.values())):
        for path in paths:
            if out and f"{_path_of(path)}/".startswith(f"{out}/{table.name}/"):
                text = f"{key}: {path} lies where this job writes its own tables; choose another out"
                diagnostics.error(f"config key {key}", text)


def _path_of(place: str) -> str:
    """A path inside its file system; "" where there is none, which others tell."""
    try:
        return Folder(place).at()
    except (OSError, ValueError, pa.ArrowException):
        return ""


def check_evaluation(config: JobConfig, scores: Iterable[str], diagnostics: Diagnostics) -> None:
    """Annotators, measures, statistics and scores exist, go together and are named once."""
    if not config.annotators:
        diagnostics.error("no annotators", "annotators: none is given, so no document would get a label")
    measures = [canonical_name(name) for name in config.measures or []]
    named = {"annotators": config.annotators, "measures": measures, "statistics": config.statistics}
    for key, names in named.items():
        for name in sorted({name for name in names if names.count(name) > 1}):
            diagnostics.error("repeated names", f"{key}: {name} is named more than once")
    for statistic in config.statistics:
        # those of the package are known to work, and compile their loops at the first call
        if statistic not in STATISTICS:
            attempt(diagnostics, "statistics", functools.partial(agree, [0.0, 1.0], [0.0, 1.0], statistic))
    known = [
        name
        for name in config.annotators
        if attempt(diagnostics, "annotators", functools.partial(annotator_named, name))
    ]
    for score in sorted({*scores, *([config.score] if config.score else [])}):
        if attempt(diagnostics, "score", functools.partial(score_named, score)):
            for annotator in known:
                attempt(diagnostics, "measures", functools.partial(_check_measures, config, annotator, score))


def check_reader_names(reader: ReaderConfig) -> Sequence[str]:
    """Return what is wrong with the kind of a reader and with the place of its model, where that is on this machine."""
    try:
        find("reader", reader.kind, dict.fromkeys(KINDS))
        model = reader.model or ""
        is_on_hub = (
            model and not model.startswith((".", "/", "~", "package:")) and not model.endswith(".gguf")
        )
        if reader.kind not in ("served", "echo") and not is_on_hub:
            find_model(model, key="reader.model")
    except InputError as error:
        return error.problems
    except ValueError as error:
        return [f"reader.kind: {error}"]
    return []


def cutoff_notes(config: JobConfig) -> list[str]:
    """Return a note on the cut-offs that no list is long enough for, if there are any."""
    diagnostics = Diagnostics()
    beyond = [cutoff for cutoff in config.cutoffs if cutoff > config.depth]
    if beyond:
        diagnostics.warning(
            f"cut-offs beyond depth {config.depth}, left out", *map(str, beyond), count=len(beyond)
        )
    return list(diagnostics.warnings)


def _check_measures(config: JobConfig, annotator: str, score: str) -> None:
    kind = kind_of_labels(annotator, score)
    check_measures(asked_measures(config.measures, kind, config.threshold), kind, config.threshold)


def attempt(diagnostics: Diagnostics, key: str, check: Callable[[], object]) -> bool:
    """Run a check that raises ValueError and record what it says; whether it passed."""
    try:
        check()
    except ValueError as error:
        diagnostics.error(f"config key {key}", f"{key}: {error}")
        return False
    return True


def scores_of(queries: pl.DataFrame) -> list[str]:
    """The scores that the questions name."""
    return queries["score"].unique().sort().to_list()

"""What a second start makes anew: what has changed, and nothing else; and it is the same as made from nothing."""

import importlib
import pathlib
import sys
from collections.abc import Iterable, Iterator

import pytest
from given_results import RESULTS
from polars.testing import assert_frame_equal
from tiny import PASSAGES, Tiny, make_tables, passage_line, table

from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.inputs.stage import INPUT_TABLES
from erag_ray.store.fingerprints import NOT_LOCAL
from erag_ray.store.schemas import DOCUMENT_OUTPUTS, LABELS, LIST_OUTPUTS, SLICES, UTILITY, TableSchema
from erag_ray.store.stages import stage as stages
from erag_ray.store.stages.stage import Stage, ensure
from erag_ray.store.tables import TableStore

OUTPUTS = (DOCUMENT_OUTPUTS, LIST_OUTPUTS)
TABLES: tuple[TableSchema, ...] = (*INPUT_TABLES, SLICES, LABELS, UTILITY, *OUTPUTS, *RESULTS)
ALL = {schema.name for schema in TABLES}
INPUTS = {schema.name for schema in (*INPUT_TABLES, SLICES)}
OF_SLICES = {"slice_means", "slice_comparisons"}
OF_FILES = {schema.name for schema in INPUT_TABLES}
OF_VALUES = {"means", "correlations", "comparisons", "contrasts", "best_depths", *OF_SLICES}
FROM_CELLS = {"cell_shares", "complements"}
RESAMPLED = {"means", "correlations", "contrasts", "slice_means"}


def sealed_at(tiny: Tiny, names: Iterable[str] = ALL) -> dict[str, int]:
    """Table -> when its manifest was written."""
    out = pathlib.Path(tiny.config.out)
    return {name: (out / name / "manifest.json").stat().st_mtime_ns for name in names}


def made_again(tiny: Tiny) -> set[str]:
    """The tables that the same command, or another one with the same ``out``, makes."""
    before = sealed_at(tiny)
    make_tables(tiny)
    return {name for name, time in sealed_at(tiny).items() if time != before[name]}


def assert_as_from_nothing(tiny: Tiny) -> None:
    """All tables are those of a job that finds nothing but readings."""
    other = tiny.with_config(out=f"{tiny.config.out}-other")
    make_tables(other)
    for schema in TABLES:
        assert_frame_equal(table(tiny, schema), table(other, schema))


def test_the_same_again_makes_nothing_and_says_so(compared: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert made_again(compared) == set()
    assert capsys.readouterr().err.splitlines() == [
        "inputs: as sealed before",
        "labels: as sealed before",
        "end-to-end scores: as sealed before",
        "per_query, means, comparisons, best_depths, cells, cell_shares, complements, "
        "slice_means, slice_comparisons, correlations, contrasts: as sealed before",
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"num_resamples": 300}, RESAMPLED),
        ({"confidence": 0.8}, {*OF_VALUES, *FROM_CELLS}),
        ({"num_permutations": 200}, {"correlations"}),
        ({"statistics": ["kendall_tau_b"]}, {"correlations", "contrasts"}),
        ({"cutoffs": [1, 2]}, {"per_query", *OF_VALUES}),
        ({"measures": ["P", "R"]}, {"per_query", *OF_VALUES}),
        # the cells are made again, and stay the same: what follows from them is kept
        ({"annotators": ["erag", "provenance"]}, ALL - INPUTS - {"utility", "list_outputs", *FROM_CELLS}),
        ({"end_to_end_depths": [2, 3]}, ALL - INPUTS),
        ({"slices": ["known"]}, {"cell_shares", *OF_SLICES}),
        ({"slices": ["known", "id"]}, {"slices", "cell_shares", *OF_SLICES}),
        ({"score": "token_f1"}, ALL),
        ({"seed": 3}, OF_FILES | RESAMPLED),
        # what is no part of any table
        ({"write_every_seconds": 7.0, "max_error_fraction": 0.5}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_change_makes_what_depends_on_it(
    compared: Tiny, changes: dict[str, object], made: set[str]
) -> None:
    other = compared.with_config(**changes)
    assert made_again(other) == made
    assert_as_from_nothing(other)
    assert made_again(other) == set()


@pytest.mark.long
@pytest.mark.parametrize(
    ("title", "made"),
    [
        # an output whose F1 is 2/3
        ("Ada Brunner of Graz", {"per_query", "cells", *OF_VALUES, *FROM_CELLS}),
        # labels are all 0 or 1, so no value of a list changes
        ("Ada Brunner", {"per_query", "cells"}),
    ],
)
def test_a_threshold_of_graded_labels_is_seen_where_it_changes_any(
    tiny: Tiny, reads_here: list[int], title: str, made: set[str]
) -> None:
    tiny.passages.write_text(tiny.passages.read_text().replace('"Ada Brunner"', f'"{title}"'))
    graded = tiny.with_config(score="token_f1", threshold=0.5)
    make_tables(graded)
    other = graded.with_config(threshold=0.9)
    assert made_again(other) == made
    assert_as_from_nothing(other)


@pytest.mark.long
def test_a_changed_input_file_makes_what_is_made_of_it(compared: Tiny) -> None:
    compared.passages.write_text(
        compared.passages.read_text().replace("the metal of the dome", "the dome and its metal")
    )
    # what the reader answers, and so all that follows, stays the same
    assert made_again(compared) == {"labels", "document_outputs", "utility", "list_outputs", *OF_FILES}
    assert_as_from_nothing(compared)


def test_passages_that_nobody_asks_for_leave_the_results(compared: Tiny) -> None:
    with compared.passages.open("a") as file:
        file.write(passage_line("d13", *PASSAGES["d12"]))
    # a file with another stamp is read
    assert made_again(compared) == OF_FILES


def test_another_version_of_the_code_makes_everything(
    compared: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "code_fingerprint", lambda: "another version")
    assert made_again(compared) == ALL


@pytest.mark.long
def test_what_was_killed_between_two_tables_goes_on_with_the_second(compared: Tiny) -> None:
    TableStore(compared.config.out).invalidate(CORRELATIONS)
    others = ALL - {CORRELATIONS.name}
    before = sealed_at(compared, others)
    make_tables(compared)
    assert sealed_at(compared, others) == before
    assert_as_from_nothing(compared)


# --- code from outside ---


@pytest.fixture
def module(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A score in a module of the user's own, with what it calls in a second one."""
    monkeypatch.syspath_prepend(str(tiny.folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tiny.folder / "own_scores.py").write_text(
        "from erag_ray.measures.scores import Score\n"
        "import own_rule\n"
        "OWN = Score(name='own', function=lambda output, gold_answers: float(own_rule.is_right(output, gold_answers)),"
        " binary=True, normalises=False)\n"
    )
    rule = tiny.folder / "own_rule.py"
    rule.write_text("def is_right(output, gold_answers):\n    return output in gold_answers\n")
    yield rule
    for name in ("own_scores", "own_rule"):
        sys.modules.pop(name, None)


@pytest.mark.long
def test_what_outside_code_makes_is_made_again_and_the_rest_only_if_that_changes(
    tiny: Tiny, reads_here: list[int], module: pathlib.Path
) -> None:
    own = tiny.with_config(score="own_scores:OWN")
    make_tables(own)
    # its result is the same, and so is all that follows without calling it or asking whether more is better
    made = {"labels", "utility", "document_outputs", "list_outputs", "per_query", "best_depths", "contrasts"}
    assert made_again(own) == made
    # not the module that the config names has changed, but one that it imports
    module.write_text("def is_right(output, gold_answers):\n    return len(output) > 5\n")
    for name in ("own_scores", "own_rule"):
        sys.modules.pop(name)
    importlib.invalidate_caches()
    before = table(own, UTILITY)
    assert made_again(own) == ALL - INPUTS
    assert not table(own, UTILITY).equals(before)
    assert_as_from_nothing(own)


def test_a_score_in_a_language_is_no_outside_code(tiny: Tiny, reads_here: list[int]) -> None:
    korean = tiny.with_config(language="ko")
    make_tables(korean)
    assert made_again(korean) == set()


def stage(**changes: object) -> Stage:
    given = {"name": "labels", "tables": [LABELS], "settings": {"depth": 3}, "inputs": {"file": "5 bytes"}}
    return Stage(**{**given, "make": lambda append: {}, **changes})  # type: ignore[arg-type]


def test_the_fingerprint_holds_all_that_a_stage_depends_on() -> None:
    others = [
        stage(settings={"depth": 4}),
        stage(inputs={"file": "6 bytes"}),
        stage(inputs={"other": "5 bytes"}),
        stage(names=["erag"]),
    ]
    assert len({one.fingerprint for one in (stage(), *others)}) == 5
    assert stage().fingerprint == stage(name="other words", tables=[UTILITY]).fingerprint


def test_what_cannot_be_known_is_never_taken_for_the_same(tmp_path: pathlib.Path) -> None:
    store = TableStore(str(tmp_path))
    for unknown in (stage(inputs={"file": NOT_LOCAL}), stage(names=["erag", "mine:OWN"])):
        assert unknown.fingerprint is None
        store.write(LABELS.empty(), LABELS, made_from=unknown.fingerprint)
        assert ensure(unknown, store)
    store.write(LABELS.empty(), LABELS, made_from=stage().fingerprint)
    assert not ensure(stage(), store)

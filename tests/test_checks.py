"""What is refused before anything is read or overwritten: readers, names, places, and code of the user's own."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable

import polars as pl
import pytest
from scripts import ROOT, python
from tiny import Tiny, compare, make_tables, table

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.evaluation import evaluate
from erag_ray.analyses.means import MEANS
from erag_ray.annotators import Annotator
from erag_ray.config.reader import KINDS, ReaderConfig
from erag_ray.inference.planning.plan import plan_lists, plan_stage
from erag_ray.inference.planning.uses import check_reader
from erag_ray.inputs.stage import prepare, prepared
from erag_ray.models import MODELS
from erag_ray.store.schemas import LABELS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError


@pytest.mark.long
@pytest.mark.parametrize(
    ("reader", "told"),
    [
        (ReaderConfig(kind="causal", model="/no/such/folder"),
         "reader.model: there is no folder /no/such/folder"),
        (ReaderConfig(kind="ehco"),
         "reader.kind: unknown reader 'ehco'; known: causal, echo, fid, function, ipa, served, vllm, or "
         "package.module:name. Did you mean 'echo'?"),
        (ReaderConfig(kind="pathlib:Path"), "reader.kind: pathlib:Path is not a subclass"),
    ],
)  # fmt: skip
def test_a_wrong_reader_is_told_with_the_wrong_files_and_former_results_stay(
    compared: Tiny, reader: ReaderConfig, told: str
) -> None:
    runs = {**compared.config.runs, "gone": "/no/such/run.trec"}
    wrong = dataclasses.replace(compared.config, reader=reader, runs=runs)
    with pytest.raises(InputError) as raised:
        prepare(wrong, check_reader)
    assert any(told in problem for problem in raised.value.problems)
    assert any("/no/such/run.trec" in problem for problem in raised.value.problems)
    assert TableStore(compared.config.out).is_sealed(MEANS)


def test_the_kinds_that_are_known_without_torch_are_those_of_the_models() -> None:
    assert set(KINDS) == set(MODELS)


@pytest.mark.long
@pytest.mark.parametrize("changes", [{"measures": ["Z"]}, {"statistics": ["Z"]}, {"measures": ["P", "P"]}])
def test_evaluate_refuses_what_cannot_be_and_former_results_stay(
    compared: Tiny, changes: dict[str, list[str]]
) -> None:
    inputs = prepared(compared.config)
    with pytest.raises(InputError):
        evaluate(dataclasses.replace(compared.config, **changes), inputs)  # type: ignore[arg-type]
    assert TableStore(compared.config.out).is_sealed(MEANS)


def test_a_kind_that_there_is_not_is_refused_in_every_step(tiny: Tiny) -> None:
    config = dataclasses.replace(tiny.config, reader=ReaderConfig(kind="stop_ipa", model="/no/such/folder"))
    known = "causal, echo, fid, function, ipa, served, vllm, or package.module:name"
    unknown = f"reader.kind: unknown reader 'stop_ipa'; known: {known}"
    inputs = prepare(config)
    lists = inputs.runs.select("query_id", kind=pl.lit("answer"), doc_ids=pl.concat_list("doc_id"))
    steps = [
        lambda: prepare(config, check_reader),
        lambda: plan_stage(config, inputs, "annotate", single_document=True, end_to_end=False),
        lambda: plan_lists(config, inputs, "settle", lists),
    ]
    for step in steps:
        with pytest.raises(InputError, match=unknown):
            step()


@pytest.mark.long
def test_measures_by_other_names_stand_under_their_own(compared: Tiny) -> None:
    inputs, means = prepared(compared.config), []
    for measures in (["map", "MRR", "Hit Ratio", "P"], ["AP", "RR", "Success", "P"]):
        evaluate(dataclasses.replace(compared.config, measures=measures), inputs)
        assert set(table(compared, PER_QUERY)["measure"]) == {"AP", "RR", "Success", "P"}
        means.append(table(compared, MEANS))
    assert means[0].equals(means[1])


def test_a_cache_that_cannot_be_written_to_is_refused_before_anything_is_sealed(tiny: Tiny) -> None:
    file = tiny.folder / "a_file"
    file.write_text("")
    with pytest.raises(InputError, match=f"cache_dir: cannot write to {file}"):
        prepare(dataclasses.replace(tiny.config, cache_dir=str(file / "below")))
    assert not TableStore(tiny.config.out).is_sealed(LABELS)


def test_a_very_long_run_name_goes_all_the_way(tiny: Tiny, reads_here: list[int]) -> None:
    runs = {"x" * 400: next(iter(tiny.config.runs.values()))}
    compare(dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, runs=runs)))
    (written,) = pathlib.Path(tiny.config.out, "trec").glob("*.trec")
    assert len(written.name) < 200


def test_cut_offs_beyond_the_depth_are_noted(tiny: Tiny) -> None:
    inputs = prepare(dataclasses.replace(tiny.config, cutoffs=[1, 500]))
    assert any("left out: 1 (500)" in note for note in inputs.notes)


@pytest.mark.long
def test_code_of_your_own_is_found_in_the_folder_where_the_job_starts(tiny: Tiny) -> None:
    (tiny.folder / "mine.py").write_text(
        "from erag_ray.measures.scores import Score\n"
        "def half(output, answers):\n    return 0.5\n"
        "HALF = Score(name='half', function=half, binary=False, normalises=False)\n"
    )
    options = [
        f"--queries=[{tiny.queries}]",
        f"--passages=[{tiny.passages}]",
        "--out=out",
        "--cache_dir=store",
    ]
    command = [ROOT / "jobs" / "prepare.py", *options, "--runs", json.dumps(tiny.config.runs)]
    settings = {"cwd": tiny.folder, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    taken = python(*command, "--score", "mine:HALF", **settings)
    assert taken.returncode == 0, taken.stderr
    refused = python(*command, "--score", "mine:half", **settings)
    assert refused.returncode == 2
    assert "score 'mine:half' is a function, not an erag_ray.measures.scores.Score" in refused.stderr


def annotator(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Annotator:
    """One whose labels are 1, but for a change."""
    return Annotator(
        name="mine",
        function=lambda evidence: change(evidence.pairs.with_columns(label=pl.lit(1.0))),
        applies=lambda evidence: pl.lit(True),
        kind="graded",
    )


NOT_A_NUMBER = annotator(lambda labels: labels.with_columns(label=pl.lit(float("nan"))))
FORGETFUL = annotator(lambda labels: labels[:-1])


@pytest.mark.parametrize(
    ("name", "fault"),
    [("NOT_A_NUMBER", "column label holds NaN"), ("FORGETFUL", "left out 1 pairs, such as {'")],
)
def test_labels_of_outside_code_that_cannot_be_are_told_by_its_name(
    tiny: Tiny, reads_here: list[int], name: str, fault: str
) -> None:
    some = tiny.with_config(annotators=["erag", f"{__name__}:{name}"])
    with pytest.raises(InputError, match=rf"annotators: .*{name}: .*{fault}"):
        make_tables(some)

"""What is in notebooks/ goes from a finished job's tables to what it shows."""

import os
import pathlib
import re
import shutil
from typing import Any

import polars as pl
import pytest
import transformers
from bench.readers.roofline import encoder_operations
from evaluated import correlations, measured, numbered, settings, used
from quiet_ray import ENVIRONMENT
from scripts import import_script
from tiny import Tiny, kilt_line, passage_line

from erag_ray.analyses.parts.formats import rows_of_text
from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.papers.figures import agreement_by_depth
from erag_ray.extras.world.config import WorldConfig

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.long
@pytest.mark.timeout(180)
def test_the_notebook_shows_table_1_and_figure_1(compared: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("ERAG_RAY_OUT", compared.config.out)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    book = nbformat.read(ROOT / "notebooks" / "table_1_and_figure_1.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute(cwd=str(compared.folder))
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    text = " ".join(str(data.get("text/plain", "")) for data in (output.get("data", {}) for output in shown))
    for run in ("good", "bad"):
        assert f"Table 1: {run}, 3 documents" in text
    for name in ("erag", "provenance", "nDCG", "tiny tau"):
        assert name in text
    assert not any(output.output_type == "error" for output in shown)
    assert any("image/png" in output.get("data", {}) for output in shown)


IN_PYTHON = ("first_steps", "your_own_retriever", "chunk_size", "cells")


def shapes_in(book: Any) -> list[str]:
    """The shapes of the frames that a notebook shows; none of its cells failed."""
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    texts = [output.get("text", output.get("data", {}).get("text/plain", "")) for output in outputs]
    return re.findall(r"shape: \(.*?\)", "".join(texts))


@pytest.mark.parametrize("name", IN_PYTHON)
def test_a_notebook_stands_with_its_outputs_and_names_no_machine(name: str) -> None:
    nbformat = pytest.importorskip("nbformat")
    file = ROOT / "notebooks" / f"{name}.ipynb"
    assert shapes_in(nbformat.read(file, as_version=4))
    text = file.read_text()
    assert len(text) < 30_000
    assert not re.search(r"/(home|root|tmp|work|usr)/", text)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", IN_PYTHON)
def test_a_notebook_shows_the_same_frames_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # what an earlier run has answered would not be counted again
    shutil.rmtree(ROOT / "results" / "notebooks", ignore_errors=True)
    book = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    before = shapes_in(book)
    nbclient.NotebookClient(book, timeout=500, kernel_name="python3").execute(cwd=str(ROOT / "notebooks"))
    assert shapes_in(book) == before


TRAINING = "train_a_retriever.ipynb"
GAIN = r"nDCG@3: (\S+) -> (\S+), gain (\S+) \[(\S+), (\S+)\]"


def printed_by(book: Any) -> str:
    """What the cells of a notebook printed; none may have failed."""
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    return "".join(output.get("text", "") for output in outputs)


def test_the_notebook_that_trains_a_retriever_stands_with_its_outputs() -> None:
    nbformat = pytest.importorskip("nbformat")
    file = ROOT / "notebooks" / TRAINING
    assert file.stat().st_size < 20_000
    text = printed_by(nbformat.read(file, as_version=4))
    found = re.search(GAIN, text)
    assert found
    before, after, gain, low, high = map(float, found.groups())
    assert low <= gain <= high
    assert gain == pytest.approx(after - before, abs=0.0015)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_notebook_trains_a_retriever_on_labels(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    for name, value in {**ENVIRONMENT, "ERAG_RAY_OUT": str(tmp_path / "work")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(ROOT / "notebooks" / TRAINING, as_version=4)
    stand = printed_by(book)
    nbclient.NotebookClient(book, timeout=800, kernel_name="python3").execute(cwd=str(tmp_path))
    lines = [line for line in printed_by(book).splitlines() if line in stand.splitlines()]
    # the number of triples and labels; the last digits of the gain may differ on other machines
    assert any(line.endswith(" labels") for line in lines)
    found = re.search(GAIN, printed_by(book))
    assert found
    before, after, *_ = map(float, found.groups())
    assert 0 < before < 1
    assert after > before - 0.1


def test_each_annotator_shows_its_best_measure_at_every_depth() -> None:
    utility = {("r", "A", depth): [0, 1, 1, 0, 1, 0, 1, 1] for depth in (1, 2)}
    bad = {key: [1, 0, 1, 0, 1, 1, 0, 1] for key in utility}
    x = measured(utility, measure="P").vstack(measured(bad, measure="Success"))
    table = correlations(x, used(utility), numbered(8), settings(depths=[1, 2]))
    curves = agreement_by_depth(table, "d", "A", "kendall_tau_b")
    assert curves.select("annotator", "measure", "depth").rows() == [("erag", "P", 1), ("erag", "P", 2)]
    assert curves["value"].to_list() == pytest.approx([1.0, 1.0])
    assert agreement_by_depth(table, "d", "B", "kendall_tau_b").is_empty()


def test_the_gate_is_simulated_with_differences_that_are_known(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = import_script("notebooks/gate.py")
    for correlation in (0.0, 0.8):
        won, lost = notebook.shares_that_differ(correlation, -0.02)
        assert won - lost == pytest.approx(-0.02)
    # independent answers, right with .4 and .38
    won, lost = notebook.shares_that_differ(0.0, -0.02)
    assert (won, lost) == pytest.approx((0.6 * 0.38, 0.4 * 0.62), abs=1e-4)
    for name, value in {"NUM_SETS": 40, "SIZES": (60,), "CORRELATIONS": (0.5,)}.items():
        monkeypatch.setattr(notebook, name, value)
    assert notebook.verdicts(60, 0.5, 0.5) == {"passed": 40}
    assert notebook.verdicts(60, 0.5, -0.35) == {"failed": 40}
    notebook.main(tmp_path / "shown")
    lines = (tmp_path / "shown" / "gate.md").read_text().splitlines()
    assert [line.count("|") for line in lines] == [8, 8, 8]
    assert lines[2].startswith("| 60 | 0.5 | ")


def test_sampling_is_simulated_on_the_labels_of_a_finished_job(
    compared: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = import_script("notebooks/fewer_readings.py")
    shares = {"SHARES": (0.5, 1.0), "STOPPING_SHARES": (1.0,)}
    for name, value in {"NUM_SETS": 5, "NUM_ORDERS": 5, **shares}.items():
        monkeypatch.setattr(notebook, name, value)
    notebook.main(compared.folder / "shown", [f"{compared.config.out}:3"])
    lines = (compared.folder / "shown" / "fewer_readings.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| out,")]
    # two measures at two shares, then both of the one pair of runs
    assert [row[1] for row in cells] == ["P", "P", "DCG", "DCG", "P", "DCG"]
    # all is read: no bias, no error
    assert all(row[3:5] in (["+0.0000", "0.0000"], ["-0.0000", "0.0000"]) for row in cells[1:4:2])
    # bad has the answers to two questions of six among its three documents, good has all: (2 - 6) / 3 / 6
    assert cells[4][2:4] == ["bad - good", "-0.222"]


WORLD = WorldConfig(seed=5, num_passages=300)


@pytest.mark.parametrize("task", ["nq", "fever"])
def test_made_documents_of_a_world_are_what_they_are_called(task: str) -> None:
    notebook = import_script("notebooks/harm.py")
    cases = notebook.world_cases(WORLD, task, 15)
    assert len(cases) == 15
    assert cases == notebook.world_cases(WORLD, task, 20)[:15]
    for case in cases:
        (gold,), (false,) = case.documents["gold"], case.documents["counterfactual"]
        assert notebook.contains(gold, case.names)
        assert not any(notebook.contains(other, case.names) for other in (false, *case.documents["topical"]))
        # the rest of the passage is as it was
        assert false.text == gold.text.replace(case.names[0], case.wrong)
        assert case.answers != ("REFUTES",) or case.wrong in case.question
        for document in notebook.unrelated_documents(case, cases):
            assert document.page_id not in case.page_ids
            assert not notebook.contains(document, case.names)
    assert any(len(case.documents["topical"]) > 1 for case in cases)


def test_made_documents_of_a_file_have_answers_of_the_same_kind(tmp_path: pathlib.Path) -> None:
    notebook = import_script("notebooks/harm.py")
    questions, passages = tmp_path / "questions.jsonl", tmp_path / "passages.jsonl"
    answers = enumerate(["Ada Brunner", "Ida Holm", "1874", "1901"], 1)
    questions.write_text("".join(kilt_line(f"q{n}", "who or when?", text, f"p{n}") for n, text in answers))
    texts = {
        "p1": ["Ada Brunner came. ADA BRUNNER left! Adam stayed.", "Nobody else."],
        "p2": ["no Ida Holmes"],
        "p3": ["1874, not 18741"],
    }
    lines = [passage_line(f"{page}/{text}", page, "", text) for page, own in texts.items() for text in own]
    passages.write_text("".join(lines))
    first, third = notebook.file_cases(str(questions), str(passages), 9)
    assert (first.query_id, third.query_id) == ("q1", "q3")
    assert [document.text for document in first.documents["counterfactual"]] == [
        "Ida Holm came. Ida Holm left! Adam stayed."
    ]
    assert [document.text for document in first.documents["topical"]] == ["Adam stayed.", "Nobody else."]
    assert [document.text for document in third.documents["counterfactual"]] == ["1901, not 18741"]
    kinds = [notebook.answer_kind(answer) for answer in ("May 18, 2018", "May 1, 2018", "the sea", "Ada")]
    assert kinds == [("xxx 00, 0000", 0), ("xxx 0, 0000", 0), ("words", 2), ("name", 1)]


@pytest.mark.long
@pytest.mark.timeout(180)
def test_harm_is_measured_on_documents_of_which_it_is_known(
    reads_here: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = import_script("notebooks/harm.py")
    reader = ReaderConfig(kind="fid", model=str(ROOT / "jobs" / "demo" / "reader"), max_new_tokens=30)
    sources = {
        task: (lambda count, task=task: notebook.world_cases(WORLD, task, count)) for task in ("nq", "fever")
    }
    monkeypatch.setattr(notebook, "CANDIDATES", 3)
    notebook.main(tmp_path / "all", sources, reader, 6)
    text = (tmp_path / "all" / "harm.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert "|".join(rows[0]) == "documents|number|gain|gain, answered"
    assert [row[0] for row in rows] == ["documents", *notebook.KINDS] * 2
    # the reader answers no question by heart, and gain finds no harm
    assert [(row[2].split(" ")[0], row[3]) for row in rows[1:5]] == [("0.0%", "-")] * 4
    assert (
        "nq: gain can fall below 0 only on the questions that the reader answers without documents, 0 of 6"
        in text
    )
    notebook.main(tmp_path / "answered", {"fever": sources["fever"]}, reader, 6, known_first=True)
    assert "answers without documents, 6 of 6 questions" in (tmp_path / "answered" / "harm.md").read_text()


def test_a_share_has_its_wilson_interval() -> None:
    # 1 of 10: (0.1 + z2/20 -+ z sqrt(0.009 + z2/400)) / (1 + z2/10), z = 1.96
    notebook = import_script("notebooks/harm.py")
    assert notebook.share(pl.Series([True] + [False] * 9)) == "10.0% (1.8% to 40.4%)"


def test_the_estimate_of_an_a100_counts_the_operations_of_t5() -> None:
    notebook = import_script("notebooks/a100_estimate.py")
    shape = notebook.T5_SHAPES["T5-small"]
    settings = transformers.T5Config(vocab_size=32_128, **shape)
    batch = notebook.t5_batch(shape, 150)
    rows, width = batch.num_pairs, 152
    assert rows == 1024
    assert batch.reading.operations == pytest.approx(encoder_operations(settings, [width] * rows), rel=0.02)
    # of a row and a step: projections of both attentions (the query of the second and its values pass through
    # matrices of inner x width), attention to states of this width, feed-forward, and the output layer
    inner = settings.num_heads * settings.d_kv
    attention = 8 * settings.d_model * inner + 2 * width * settings.num_heads * settings.d_model
    layer = 2 * (attention + 2 * settings.d_model * settings.d_ff)
    step = settings.num_layers * layer + 2 * settings.d_model * settings.vocab_size
    assert batch.writing.operations == pytest.approx(8 * rows * step, rel=0.02)
    # 6 layers of some ten kernels in each of three passes, of some 25 in each of eight steps
    assert 6 * 3 * 10 < len(batch.reading.kernels) < 6 * 3 * 25
    assert 6 * 8 * 20 < len(batch.writing.kernels) < 6 * 8 * 40


def test_the_estimate_of_an_a100_counts_the_operations_of_a_decoder() -> None:
    notebook = import_script("notebooks/a100_estimate.py")
    shape = notebook.LLAMA_SHAPE | {"num_hidden_layers": 2}
    batch = notebook.llama_batch(shape, 150)
    width, feed, keys = shape["hidden_size"], shape["intermediate_size"], 8 * 128
    weights = 2 * (2 * width * width + 2 * width * keys + 3 * width * feed)
    # a causal mask leaves half of the pairs of tokens; the output layer sees the last token alone
    token, last = 2 * weights + 2 * 2 * width * 150, 2 * width * shape["vocab_size"]
    assert batch.reading.operations == pytest.approx(batch.num_pairs * (150 * token + last), rel=0.02)
    step = 2 * weights + 2 * 4 * width * 151 + last
    assert batch.writing.operations == pytest.approx(15 * batch.num_pairs * step, rel=0.02)


def test_a_kernel_takes_the_longest_of_its_bounds_and_a_phase_the_longer_of_gpu_and_host() -> None:
    notebook = import_script("notebooks/a100_estimate.py")
    small, bytes_, products = (
        notebook.Kernel("k", *numbers) for numbers in ((10, 10), (1.244e12, 1e6), (10, 171.6e12 * 2))
    )
    assert [kernel.seconds for kernel in (small, bytes_, products)] == pytest.approx([2e-6, 1.0, 2.0])
    # 100 kernels of 2 us are launched in 8 us each
    waiting, busy = notebook.Phase(kernels=[small] * 100), notebook.Phase(kernels=[products, bytes_])
    assert (waiting.seconds, busy.seconds) == pytest.approx((800e-6, 3.0))
    batch = notebook.Batch(num_pairs=30, reading=busy, writing=waiting)
    assert batch.pairs_a_second == pytest.approx(30 / 3.0008)
    rows = rows_of_text(notebook.table([("model", 150, 8, batch)]))
    assert [(row[1], row[3]) for row in rows] == [("in", "2"), ("out", "100")]
    assert rows[1][-1] == "10"

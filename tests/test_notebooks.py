"""What is in notebooks/ goes from a finished job's tables to what it shows."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest
from test_evaluate import correlations, measured, numbered, settings, used
from tiny import Tiny, compare

from erag_ray.report import agreement_by_depth

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.timeout(180)
def test_the_notebook_shows_table_1_and_figure_1(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    compare(tiny)
    monkeypatch.setenv("ERAG_RAY_OUT", tiny.config.out)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    book = nbformat.read(ROOT / "notebooks" / "table_1_and_figure_1.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute(cwd=str(tiny.folder))
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    text = " ".join(str(data.get("text/plain", "")) for data in (output.get("data", {}) for output in shown))
    for run in ("good", "bad"):
        assert f"Table 1: {run}, 3 documents" in text
    for name in ("erag", "provenance", "nDCG", "tiny tau"):
        assert name in text
    assert not any(output.output_type == "error" for output in shown)
    assert any("image/png" in output.get("data", {}) for output in shown)


def test_each_annotator_shows_its_best_measure_at_every_depth() -> None:
    utility = {("r", "A", depth): [0, 1, 1, 0, 1, 0, 1, 1] for depth in (1, 2)}
    bad = {key: [1, 0, 1, 0, 1, 1, 0, 1] for key in utility}
    x = measured(utility, measure="P").vstack(measured(bad, measure="Success"))
    table = correlations(x, used(utility), numbered(8), settings(depths=[1, 2]))
    curves = agreement_by_depth(table, "d", "A", "kendall_tau_b")
    assert curves.select("annotator", "measure", "depth").rows() == [("erag", "P", 1), ("erag", "P", 2)]
    assert curves["value"].to_list() == pytest.approx([1.0, 1.0])
    assert agreement_by_depth(table, "d", "B", "kendall_tau_b").is_empty()


def test_sampling_is_simulated_on_the_labels_of_a_finished_job(
    tiny: Tiny, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(tiny)
    spec = importlib.util.spec_from_file_location("fewer_readings", ROOT / "notebooks" / "fewer_readings.py")
    assert spec is not None
    assert spec.loader is not None
    notebook = importlib.util.module_from_spec(spec)
    # a dataclass looks its module up
    monkeypatch.setitem(sys.modules, spec.name, notebook)
    spec.loader.exec_module(notebook)
    for name, value in {
        "NUM_SETS": 5,
        "NUM_ORDERS": 5,
        "SHARES": (0.5, 1.0),
        "STOPPING_SHARES": (1.0,),
    }.items():
        monkeypatch.setattr(notebook, name, value)
    notebook.main(tiny.folder / "shown", [f"{tiny.config.out}:3"])
    lines = (tiny.folder / "shown" / "fewer_readings.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| out,")]
    # four measures at two shares, then P and DCG of the one pair of runs
    assert [row[1] for row in cells] == ["P", "P", "DCG", "DCG", "AP", "AP", "nDCG", "nDCG", "P", "DCG"]
    # all is read: no bias, no error
    assert all(row[3:5] in (["+0.0000", "0.0000"], ["-0.0000", "0.0000"]) for row in cells[1:8:2])
    # bad has the answers to two questions of six among its three documents, good has all: (2 - 6) / 3 / 6
    assert cells[8][2:4] == ["bad - good", "-0.222"]

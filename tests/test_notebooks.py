"""The notebook goes from a finished job's tables to Table 1 and Figure 1."""

from __future__ import annotations

import pathlib

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

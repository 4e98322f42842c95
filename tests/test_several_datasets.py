"""Questions, claims and dialogue in one comparison, from retrieval to the paper's Table 1."""

import io
import pathlib

import polars as pl
import pytest
import rich.console
from several_datasets import three
from tiny import make_tables, tables_text

from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.parts.model import Table
from erag_ray.extras.papers.table_1 import table_1
from erag_ray.report.console import show

# --- Table 1 ---


@pytest.mark.long
def test_the_caption_says_why_cells_are_empty(
    tmp_path: pathlib.Path, reads_here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = three(tmp_path)
    make_tables(tiny)
    # so few questions would all be dashes
    monkeypatch.setattr("erag_ray.analyses.correlations.MIN_VARIED", 0)
    text = tables_text(tiny).replace("\\_", "_")
    caption = text.split("## Table 1: bm25, 3 documents")[1].split("\n## ")[0].strip().splitlines()[-1]
    assert "contains_answer_dpr, contains_answer_kilt not applicable to fever, wow" in caption
    assert "scored by exact_match" in caption
    assert "labels of erag in wow are graded, and R, AP, RR need binary ones" in caption


def made_up(datasets: list[str], value: float, low: float, high: float) -> pl.DataFrame:
    """CORRELATIONS of one run over several datasets, all alike."""
    columns = {
        "reader": "r", "score": "s", "over": "queries", "run_id": "bm25", "depth": 50, "cutoff": 50, "ideal": "list",
        "value": value, "low": low, "high": high, "ceiling": 1.0, "p_value": None, "num_queries": 9, "num_runs": 1,
        "num_dropped": 0, "reason": None,
    }  # fmt: skip
    rows = [
        {"dataset": dataset, "annotator": annotator, "measure": measure, "statistic": statistic, **columns}
        for dataset in datasets
        for annotator in ("erag", "contains_answer_kilt")
        for measure in ("P", "Success")
        for statistic in ("kendall_tau_b", "spearman_rho")
    ]
    return pl.DataFrame(rows, schema=CORRELATIONS.empty().schema)


def printed(table_: Table, width: int) -> list[str]:
    """The lines of a table on a console of this width."""
    out = io.StringIO()
    show([table_], rich.console.Console(file=out, width=width))
    return out.getvalue().splitlines()


def test_five_datasets_stand_in_the_papers_order_whatever_the_width() -> None:
    datasets = ["wow", "fever", "hotpotqa", "nq", "triviaqa"]
    made = table_1(made_up(datasets, -0.0494, -0.0914, 0.01), "bm25", 50)
    for width, num_blocks in ((80, 5), (120, 3), (300, 1)):
        lines = printed(made, width)
        assert max(map(len, lines)) <= width
        heads = [line.split()[2:] for line in lines if line.split()[:2] == ["annotator", "measure"]]
        assert len(heads) == num_blocks
        # every block names its rows; a head is two words, the dataset and the symbol
        names = list(dict.fromkeys(word for head in heads for word in head[::2]))
        assert names == ["nq", "triviaqa", "hotpotqa", "fever", "wow"]
        cell = "-0.049 [-0.091, 0.010]" if width == 300 else "-.049 [-.09, .01]"
        assert sum(line.count(cell) for line in lines) == 4 * 10

"""The papers' tables and figures, from finished jobs."""

import dataclasses
import io
import pathlib

import polars as pl
import pytest
from conftest import read_here
from tiny import Tiny, make_tables, table, write_tiny

from erag_ray.analyses.correlations import CORRELATIONS
from erag_ray.analyses.means import MEANS
from erag_ray.analyses.order import table_depths
from erag_ray.analyses.parts.formats import rows_of_text
from erag_ray.analyses.parts.shapes import tables_of
from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.papers.config import PapersConfig
from erag_ray.extras.papers.dual_labels import DUAL_LABELS, dual_probabilities
from erag_ray.extras.papers.figures import agreement_by_depth, agreement_by_reader
from erag_ray.extras.papers.stage import _csv, papers
from erag_ray.extras.papers.table_1 import table_1
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError

TAU = "kendall_tau_b"


def rows(**columns: list[object]) -> pl.DataFrame:
    """Rows over queries of one dataset and run, whose measure looks at the whole list."""
    size = len(next(iter(columns.values())))
    shared = {"over": "queries", "dataset": "d", "run_id": "A", "statistic": TAU, "ideal": "any"}
    shared |= {"score": "exact_match", "low": None, "high": None, "num_queries": 9}
    frame = pl.DataFrame({**{name: [value] * size for name, value in shared.items()}, **columns})
    return frame.with_columns(cutoff=pl.col("depth"))


def test_the_measure_is_the_one_that_agrees_best_in_table_1() -> None:
    given = rows(
        annotator=["erag"] * 4 + ["llm_relevance"] * 4,
        measure=["P", "P", "RR", "RR"] * 2,
        depth=[5, 50] * 4,
        value=[0.9, 0.1, 0.2, 0.3, 0.4, None, 0.5, None],
    )
    found = agreement_by_depth(given, "d", "A", TAU)
    # P agrees better over all depths, RR at the largest; the judge's labels end before it
    assert found.select("annotator", "measure", "depth", "value").rows() == [
        ("erag", "RR", 5, 0.2),
        ("erag", "RR", 50, 0.3),
        ("llm_relevance", "RR", 5, 0.5),
        ("llm_relevance", "RR", 50, None),
    ]


def test_the_depth_of_a_table_is_where_most_queries_have_a_value() -> None:
    given = rows(
        annotator=["erag"] * 3 + ["llm_relevance"] * 3,
        measure=["P"] * 6,
        depth=[5, 10, 50] * 2,
        value=[0.1] * 6,
        num_queries=[60, 60, 60, 40, 40, 3],
    )
    assert dict(table_depths(given).iter_rows()) == {"erag": 50, "llm_relevance": 10}


def test_an_annotator_without_any_value_is_left_out_and_one_that_judged_fewer_queries_is_named() -> None:
    given = rows(
        annotator=["erag", "llm_relevance", "gain"],
        measure=["P"] * 3,
        depth=[50] * 3,
        value=[0.5, None, 0.4],
        num_queries=[60, 0, 40],
        num_dropped=[0, 60, 20],
        reason=[None, "number of queries: 0", None],
    )
    table = table_1(given, "A", 50)
    assert {row[0] for row in rows_of_text(table)} == {"erag", "gain"}
    assert "Without any value at this depth: llm_relevance." in table.caption
    assert "Queries with labels of gain to this depth: 40 of 60 (d)." in table.caption
    assert "number of queries" not in table.caption
    assert "labels of erag" not in table.caption


def test_readers_are_compared_by_one_measure_and_where_all_of_them_read() -> None:
    columns = {"annotator": ["erag"] * 4, "measure": ["P", "RR"] * 2, "depth": [10] * 4}
    small = rows(**columns, value=[0.3, 0.1, 0.3, 0.1], dataset=["d", "d", "only", "only"])  # type: ignore[arg-type]
    large = rows(**columns, value=[0.2, 0.6, 0.3, 0.1], run_id=["A", "A", "B", "B"])  # type: ignore[arg-type]
    found = agreement_by_reader({"small": small, "large": large}, 10, TAU)
    assert found.select("dataset", "run_id", "measure", "reader", "value").rows() == [
        ("d", "A", "RR", "small", 0.1),
        ("d", "A", "RR", "large", 0.6),
    ]


@pytest.mark.parametrize("absent", [True, False])
def test_the_best_measure_has_a_value_for_every_reader(absent: bool) -> None:
    columns = {"annotator": ["erag"] * 2, "measure": ["P", "RR"], "depth": [10] * 2}
    large = rows(**columns, value=[0.2, 0.6])  # type: ignore[arg-type]
    small = rows(**columns, value=[0.3, None])  # type: ignore[arg-type]
    found = agreement_by_reader({"small": small.head(1) if absent else small, "large": large}, 10, TAU)
    assert found.select("measure", "value").rows() == [("P", 0.3), ("P", 0.2)]


def test_a_text_of_a_csv_is_no_formula_and_numbers_stay_numbers() -> None:
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "a=1", "", None]
    written = _csv(pl.DataFrame({"run_id": names, "value": [-1.5, 2.0, -0.0, 1e300, 0.0, 1.0, 2.0, None]}))
    lines = [line.split(",") for line in written.decode().splitlines()]
    assert [name for name, _ in lines[1:]] == [
        *("'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "a=1", '""', "")
    ]
    assert [value for _, value in lines[1:4]] == ["-1.5", "2.0", "-0.0"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Two comparisons, of two readers, and dual labels; tests only read them."""
    tiny = write_tiny(tmp_path_factory.mktemp("finished"))
    with pytest.MonkeyPatch.context() as patch:
        read_here(patch)
        # of six questions fewer than five vary
        patch.setattr("erag_ray.analyses.correlations.MIN_VARIED", 0)
        make_tables(tiny)
        reader = ReaderConfig(kind="echo", max_new_tokens=3)
        make_tables(tiny.with_config(out=str(tiny.folder / "other"), reader=reader))
    questions = {"dataset": "tiny", "run_id": "good", "query_id": ["q1", "q2"]}
    labels = pl.DataFrame({**questions, "doc_label": [1, 0], "word_label": [1, 1]})
    probabilities = dual_probabilities(labels, 0.95)
    TableStore(str(tiny.folder)).write(probabilities, DUAL_LABELS, config={"confidence": 0.95})
    return tiny


@pytest.fixture
def jobs(finished: Tiny, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> PapersConfig:
    monkeypatch.setattr("erag_ray.analyses.correlations.MIN_VARIED", 0)
    out, folder = finished.config.out, finished.folder
    return PapersConfig(
        comparison=out,
        by_size={"small": out, "large": str(folder / "other")},
        by_augmentation={"FiD": out, "IPA": str(folder / "nothing")},
        dual_labels=str(folder),
        size_depth=3,
        reproduction_depth=3,
        out=str(tmp_path / "papers"),
    )


@pytest.mark.long
def test_every_table_and_figure_that_is_there(
    jobs: PapersConfig, finished: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    titles = {one.title.split(":")[0] for one in tables_of(papers(jobs))}
    assert {"Table 1", "Figure 1", "Figure 2, 3 documents", "The reproduction's table"} <= titles
    assert {"tiny", "Table 3 as published", "The reproduction's table as published"} <= titles
    assert f"Figure 3 is left out: {finished.folder / 'nothing'}: not finished" in capsys.readouterr().err
    folder = pathlib.Path(jobs.out)
    assert not (folder / "figure_3.csv").exists()
    curves = pl.read_csv(io.BytesIO((folder / "figure_1.csv").read_bytes()))
    own = table(finished, CORRELATIONS)
    joined = curves.join(
        own.filter(over="queries", statistic=TAU, ideal="any").filter(pl.col("cutoff") == pl.col("depth")),
        on=["dataset", "run_id", "annotator", "measure", "depth"],
        suffix="_own",
    )
    assert joined.height > 4
    assert joined["value"].to_list() == pytest.approx(joined["value_own"].to_list(), nan_ok=True)
    assert set(pl.read_csv(folder / "figure_2.csv")["reader"]) == {"small", "large"}
    text = (folder / "report.md").read_text()
    assert "Figure 2, 3 documents" in text
    pictures = sorted(path.name for path in folder.glob("*.svg"))
    assert pictures[-1] == "figure_2.svg"
    assert any(name.startswith("figure_1-") for name in pictures)
    assert all(f"]({name})" in text for name in pictures)


@pytest.mark.long
def test_the_reproductions_table_holds_means_and_agreement(jobs: PapersConfig, finished: Tiny) -> None:
    (made,) = (one for one in tables_of(papers(jobs)) if one.title.startswith("The reproduction's table: "))
    shown = next(row for row in rows_of_text(made) if row[1:3] == ("good", "P@3"))
    mean = table(finished, MEANS, run_id="good", annotator="erag", measure="P", depth=3, cutoff=3)["mean"][0]
    tau = table(finished, CORRELATIONS, run_id="good", annotator="erag", measure="P", depth=3, cutoff=3)
    value = tau.filter(statistic=TAU, over="queries")["value"][0]
    assert shown[3].startswith("-" if value is None else f"{value:.3f}")
    # five of six questions are answered with three documents
    assert shown[5:] == (f"{mean:.4f}", "6", f"exact_match {5 / 6:.4f}")


@pytest.mark.long
def test_what_is_missing_is_said(
    jobs: PapersConfig, finished: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = PapersConfig(comparison=jobs.comparison, out=jobs.out)
    titles = [one.title for one in tables_of(papers(bare))]
    assert not any(title.startswith(("Figure 2", "Figure 3", "Table 3")) for title in titles)
    told = capsys.readouterr().err
    for text in ("Figure 2 is left out", "there is no erag with 40 documents", "Table 3 is left out"):
        assert text in told
    with pytest.raises(InputError, match="nothing is not a finished job; run erag-ray compare"):
        papers(PapersConfig(comparison=str(finished.folder / "nothing"), out=jobs.out))
    with pytest.raises(InputError, match="unknown statistic 'tau'"):
        papers(PapersConfig(comparison=jobs.comparison, statistic="tau", out=jobs.out))


@pytest.mark.long
def test_a_figure_without_figures_is_left_out_and_an_earlier_one_goes(
    jobs: PapersConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    papers(jobs)
    folder = pathlib.Path(jobs.out)
    assert (folder / "figure_2.csv").exists()
    titles = [one.title for one in tables_of(papers(dataclasses.replace(jobs, size_depth=2)))]
    assert not any(title.startswith("Figure 2") for title in titles)
    assert f"Figure 2 is left out: no run has {TAU} of erag with 2 documents" in capsys.readouterr().err
    assert not (folder / "figure_2.csv").exists()
    assert not (folder / "figure_2.svg").exists()
    with pytest.raises(InputError, match="is the folder of the comparison"):
        papers(dataclasses.replace(jobs, out=jobs.comparison))


@pytest.mark.parametrize(
    "settings",
    [
        {"num_queries": 1, "annotators": ["provenance"]},
        # applies to no question of this score
        {"score": "token_f1", "annotators": ["contains_answer_dpr"]},
    ],
)
def test_without_any_agreement_there_are_no_tables(
    tiny: Tiny, reads_here: list[int], capsys: pytest.CaptureFixture[str], settings: dict[str, object]
) -> None:
    make_tables(tiny.with_config(**settings))
    made = papers(PapersConfig(comparison=tiny.config.out, out=str(tiny.folder / "papers")))
    assert made.sections == ()
    told = capsys.readouterr().err
    for text in (
        "Table 1 is left out: no agreement",
        "the reproduction's table is left out: there is no erag",
    ):
        assert text in told

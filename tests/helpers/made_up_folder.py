"""A finished folder of any size, made up, and small reports of it, some of them hostile."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from gold import gold_of

from erag_ray.analyses.cells import CELLS
from erag_ray.analyses.parts.model import DatasetVerdict, Figure, Finding, Report, Section, Table, Verdict
from erag_ray.store import schemas
from erag_ray.store.tables import TableStore

READER = "echo-0123456789abcdef"
TEXT = (
    "the river crosses old town where mill and bridge were built by people who came from far away "
    "in winter trade grew along its banks until a railway brought stone wool grain and letters home"
)
WORDS = np.array(TEXT.split())
CELL_NAMES = ("found", "distracted", "combined", "lost", "missing")
HOSTILE = "</script><img src=x onerror=alert(1)> \u2028\u2029 \u202eright to left\u202c & <b>bold</b>"


def report_of(title: str = "Which retriever?", *parts: Table | Figure) -> Report:
    finding = Finding(topic="certainty", text="not settled: 412 questions would be needed", is_warning=True)
    verdict = DatasetVerdict(dataset="nq", answer="bm25 serves the reader best", findings=(finding,))
    return Report(
        title=title,
        verdict=Verdict(question="Which retriever serves the reader best?", datasets=(verdict,)),
        sections=(Section(name="runs", title="Runs", parts=parts),),
        warnings=("half of the outputs are empty",),
        notes=("two questions have no gold page",),
    )


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a folder is."""

    num_questions: int
    runs: tuple[str, ...] = ("bm25", "dense")
    num_documents: int = 10
    """Of each list."""
    num_words: int = 100
    """Of each text."""
    depths: tuple[int, ...] = (5, 10)
    annotators: tuple[str, ...] = ("erag", "provenance", "gain")
    share_shared: float = 0.5
    """Of a list's documents, those that all runs have."""


def write_folder(out: str, size: Size, without: tuple[schemas.TableSchema, ...] = ()) -> TableStore:
    """Seal the tables of a job in a folder, but for those of ``without``."""
    store, random = TableStore(out), np.random.default_rng(0)
    queries = _queries(size)
    runs = _runs(size, queries)
    pairs = runs.select("query_id", "doc_id").unique(maintain_order=True)
    gold = pairs.filter(pl.col("doc_id").str.ends_with("-s0"))
    lists = _lists(size, queries)
    used = lists.with_columns(value=pl.Series(random.integers(0, 2, lists.height).astype(float)))
    cells = used.filter(pl.col("depth") > 0).filter(pl.col("run_id").is_in(size.runs))
    tables = {
        schemas.QUERIES: queries,
        schemas.RUNS: runs,
        schemas.CORPUS: _corpus(size, pairs, random),
        schemas.GOLD: gold.with_columns(rank=pl.lit(1, pl.Int32)),
        schemas.PROVENANCE: gold_of(pages=gold.rows()),
        schemas.UTILITY: used.with_columns(score=pl.lit("exact_match")),
        schemas.LIST_OUTPUTS: lists.with_columns(output=pl.format("Town {}", pl.col("depth"))),
        schemas.DOCUMENT_OUTPUTS: pairs.with_columns(
            reader=pl.lit(READER), output=pl.format("Town {}", pl.col("doc_id").str.slice(1, 3))
        ),
        CELLS: cells.with_columns(
            score=pl.lit("exact_match"),
            alone=pl.lit(None, pl.Boolean),
            list=pl.col("value") > 0,
            closed_book=pl.lit(None, pl.Boolean),
            cell=pl.Series(np.array(CELL_NAMES)[random.integers(0, len(CELL_NAMES), cells.height)].tolist()),
        ),
        schemas.SLICES: queries.select(
            "query_id", slice=pl.lit("hops"), value=(pl.int_range(pl.len()) % 3 + 1).cast(pl.String)
        ),
    }
    for schema, table in tables.items():
        if schema not in without:
            store.write(table.select(schema.columns.names), schema)
    if schemas.LABELS not in without:
        _write_labels(store, size, pairs, random)
    return store


def _queries(size: Size) -> pl.DataFrame:
    number = pl.int_range(size.num_questions, eager=True)
    return pl.DataFrame({"number": number}).select(
        query_id=pl.format("q{}", "number"),
        dataset=pl.when(pl.col("number") % 2 == 0).then(pl.lit("nq")).otherwise(pl.lit("hotpotqa")),
        question=pl.format("Which river crosses the old town number {}?", "number"),
        answers=pl.concat_list(pl.lit("river"), pl.format("Town {}", "number")),
        score=pl.lit("exact_match"),
    )


def _runs(size: Size, queries: pl.DataFrame) -> pl.DataFrame:
    ranks = pl.DataFrame({"rank": range(1, size.num_documents + 1)}, schema={"rank": pl.Int32})
    runs = pl.DataFrame({"run_id": size.runs}).with_row_index("run")
    rows = runs.join(queries.select("query_id"), how="cross").join(ranks, how="cross")
    is_shared = pl.col("rank") <= size.num_documents * size.share_shared
    place = pl.col("rank") - 1
    shared = pl.format(
        "{}-s{}", "query_id", (place + pl.col("run")) % max(1, int(size.num_documents * size.share_shared))
    )
    own = pl.format("{}-{}-{}", "query_id", "run", place)
    documents = rows.with_columns(
        doc_id=pl.when(is_shared).then(shared).otherwise(own), score=-pl.col("rank").cast(pl.Float64)
    )
    return documents.select(schemas.RUNS.columns.names)


def _corpus(size: Size, pairs: pl.DataFrame, random: np.random.Generator) -> pl.DataFrame:
    # texts are cut out of one long text: as many different ones as places to cut
    long = " ".join(WORDS[random.integers(0, len(WORDS), 200_000)])
    starts = random.integers(0, len(long) - 6 * size.num_words, pairs.height)
    texts = [long[start : start + 6 * size.num_words] for start in starts]
    return pairs.select("doc_id", page_id="doc_id", title=pl.format("The town of {}", "doc_id")).with_columns(
        text=pl.Series(texts)
    )


def _lists(size: Size, queries: pl.DataFrame) -> pl.DataFrame:
    lists = [(run, depth) for run in size.runs for depth in size.depths]
    references = [("no_passages", 0), ("gold_passages", size.depths[-1])]
    schema = {"run_id": pl.String, "depth": pl.Int32}
    frame = pl.DataFrame([*lists, *references], schema=schema, orient="row")
    return queries.select("query_id").join(frame, how="cross").with_columns(reader=pl.lit(READER))


def _write_labels(store: TableStore, size: Size, pairs: pl.DataFrame, random: np.random.Generator) -> None:
    writer = store.writer(schemas.LABELS)
    for annotator in size.annotators:
        values = random.integers(-1 if annotator == "gain" else 0, 2, pairs.height).astype(float)
        named = {"annotator": annotator, "reader": READER, "score": "exact_match"}
        columns = {name: pl.lit(value) for name, value in named.items()}
        writer.append(
            pairs.with_columns(label=pl.Series(values), **columns).select(schemas.LABELS.columns.names)
        )
    store.seal(schemas.LABELS, writer.parts, writer.num_rows)

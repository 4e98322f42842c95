"""Loading and checking of EXAMPLES and their CORPUS, into Arrow files that workers memory-map."""

import contextlib
import dataclasses
import os
import pathlib
import uuid
from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from erag_ray.data.datasets.queries import LoadedQueries, load_queries, sample_loaded
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.load import CORPUS_COLUMNS
from erag_ray.data.runs.entries import ENTRY_COLUMNS, RUN_COLUMNS
from erag_ray.data.runs.load import load_run
from erag_ray.data.runs.predictions import resolve_pages
from erag_ray.data.runs.texts import load_corpus
from erag_ray.extras.train.config import ExamplesConfig, TrainConfig
from erag_ray.extras.train.data.reading_comprehension import load_reading_comprehension
from erag_ray.inputs.tables import check_inputs, gold_lists, resolve_gold
from erag_ray.measures.scores import JUDGED, score_named
from erag_ray.prompts.kinds.no_response import ABSTAINS
from erag_ray.store.folder import Folder, replace_file
from erag_ray.store.schemas import CORPUS, TableSchema, conform, table_schema
from erag_ray.store.tables import TableStore, read_manifest
from erag_ray.support.errors import InputError
from erag_ray.support.ownership import UNFINISHED

# passages and gold are row numbers of the examples' CORPUS, best first
EXAMPLES = table_schema("examples", "query_id* dataset question answers score passages gold evidence")
NO_ROWS = pl.lit([], dtype=pl.List(pl.Int32))
NO_TEXTS = pl.lit([], dtype=pl.List(pl.String))
NAMES = ("train", "dev")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples and their passages, memory-mapped, and the properties of their datasets."""

    table: pa.Table
    corpus: pa.Table
    datasets: Mapping[str, Dataset]
    notes: Sequence[str] = ()

    @property
    def dataset_names(self) -> list[str]:
        """The dataset of every question."""
        names: list[str] = self.table.column("dataset").to_pylist()
        return names


def prepare_examples(config: TrainConfig) -> dict[str, Examples]:
    """Return the examples of training and evaluation (keys train, dev) from the files, and write them to ``out``.

    Raises:
        InputError: all errors in the files; nothing is written then.
    """
    diagnostics = Diagnostics()
    loaded = {name: _load(config, name, diagnostics) for name in NAMES}
    diagnostics.raise_errors()
    for name, (frame, corpus, datasets) in loaded.items():
        folder = _folder(config, name)
        write_mapped(frame, EXAMPLES, folder / "examples.arrow")
        write_mapped(corpus, CORPUS, folder / "corpus.arrow")
        content = {
            "datasets": {key: dataclasses.asdict(dataset) for key, dataset in datasets.items()},
            "notes": list(diagnostics.warnings),
        }
        TableStore(str(folder)).write_manifest(content)
    return {name: open_examples(config, name) for name in NAMES}


def reopen_examples(config: TrainConfig) -> dict[str, Examples] | None:
    """Return the examples that an earlier start of this training has written; None if missing or damaged."""
    with contextlib.suppress(OSError, InputError, pa.ArrowException):
        return {name: open_examples(config, name) for name in NAMES}
    return None


def open_examples(config: TrainConfig, name: str) -> Examples:
    """Open the examples called ``name`` (train, dev), which `prepare_examples` has written."""
    folder = _folder(config, name)
    manifest = read_manifest(Folder(str(folder)))
    return Examples(
        table=open_mapped(folder / "examples.arrow"),
        corpus=open_mapped(folder / "corpus.arrow"),
        datasets={key: Dataset(**properties) for key, properties in manifest["datasets"].items()},
        notes=manifest["notes"],
    )


def _folder(config: TrainConfig, name: str) -> pathlib.Path:
    return pathlib.Path(config.out, "data", name)


def _load(
    config: TrainConfig, name: str, diagnostics: Diagnostics
) -> tuple[pl.DataFrame, pl.DataFrame, Mapping[str, Dataset]]:
    """Load EXAMPLES, CORPUS and datasets of train or dev."""
    examples: ExamplesConfig = getattr(config, name)
    stages = config.curriculum if name == "train" else config.curriculum[-1:]
    depth, num_gold = (
        max(max(stage.num_passages) for stage in stages),
        max(stage.num_gold for stage in stages),
    )
    if not (examples.queries or examples.given):
        if name == "train":
            diagnostics.error("no training questions", "train: no question files. Set queries or given")
        return EXAMPLES.empty(), pl.DataFrame(schema=CORPUS_COLUMNS), {}
    loaded, given_passages = _questions(examples, diagnostics)
    for score in loaded.queries["score"].unique().sort():
        diagnostics.attempt(f"{name}.score", score_named, score)
        if score in JUDGED:
            text = f"{score} needs a judge, and training has none. Choose another score, such as match"
            diagnostics.error("config key score", f"{name}.score: {text}")
    loaded = sample_loaded(loaded, examples.num_questions, config.seed)
    runs, corpus = _passages(examples, loaded, given_passages, depth, diagnostics)
    with_gold = loaded.queries if num_gold else loaded.queries.clear()
    loaded = resolve_gold(loaded, corpus, diagnostics)
    gold = gold_lists(with_gold, loaded.provenance, corpus).filter(pl.col("rank") <= num_gold)
    prompt_corpus = corpus if config.reader.titles else corpus.with_columns(title=pl.lit(""))
    frame, used = _joined(runs, gold, prompt_corpus, loaded)
    _check_lists(name, frame, depth, num_gold, diagnostics)
    added = unanswerable(frame, examples.unanswerable_share, config.seed)
    if examples.unanswerable_share and added.is_empty():
        text = "no question has passages that are not also its own. Leave unanswerable_share out"
        diagnostics.error("config key unanswerable_share", f"{name}.unanswerable_share: {text}")
    return pl.concat([frame, added]), used, loaded.datasets


def unanswerable(frame: pl.DataFrame, share: float, seed: int) -> pl.DataFrame:
    """Return further EXAMPLES without an answer: a sample of the questions, each with passages of another one.

    A question gets the passages retrieved for the next one of its dataset, in a shuffled order, less those in its own
    list and its gold passages. One that is left without any is not added.

    ``frame`` and result are EXAMPLES; the seed is that of the sample and the order.
    """
    order = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    following = pl.col("passages").shift(-1).fill_null(pl.col("passages").first()).over("dataset")
    foreign = order.with_columns(
        following.list.set_difference("passages").list.set_difference("gold").list.sort().alias("passages"),
        query_id=pl.col("query_id") + f":{ABSTAINS}",
        answers=pl.lit([ABSTAINS], dtype=pl.List(pl.String)),
        gold=NO_ROWS,
        evidence=NO_TEXTS,
    )
    with_passages = foreign.filter(pl.col("passages").list.len() > 0)
    return with_passages.head(round(share * frame.height)).select(frame.columns)


def _questions(config: ExamplesConfig, diagnostics: Diagnostics) -> tuple[LoadedQueries, pl.DataFrame]:
    """Load the questions of both kinds of files, and the passages of reading comprehension files."""
    given, passages = load_reading_comprehension(
        config.given, diagnostics, dataset=config.dataset, score=config.score
    )
    if not config.queries:
        return given, passages
    loaded = load_queries(
        config.queries,
        diagnostics,
        format=config.query_format,
        dataset=config.dataset,
        score=config.score,
        triviaqa_questions=config.triviaqa_questions,
    )
    frames = {
        key: pl.concat([getattr(loaded, key), getattr(given, key)])
        for key in ("queries", "provenance", "page_sets", "evidence")
    }
    return LoadedQueries(**frames, datasets={**given.datasets, **loaded.datasets}), passages


def _passages(
    config: ExamplesConfig,
    loaded: LoadedQueries,
    given_passages: pl.DataFrame,
    depth: int,
    diagnostics: Diagnostics,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return RUNS of the questions, cut at ``depth``, and the CORPUS of their passages and gold passages."""
    queries = loaded.queries
    given = given_passages.join(queries, left_on="doc_id", right_on="query_id", how="semi")
    lists = given.select(
        run_id=pl.lit("given"), query_id="doc_id", rank=pl.lit(1), doc_id="doc_id", score=pl.lit(None)
    ).cast(RUN_COLUMNS)
    if not (config.run or config.passages) or not depth:
        return lists.filter(pl.col("rank") <= depth), given
    files = [load_run(path, path, diagnostics) for path in config.run]
    entries = pl.concat([pl.DataFrame(schema=ENTRY_COLUMNS), *files])
    names = entries.select("run_id", "query_id").unique(maintain_order=True)
    text = "{run_id}: query {query_id!r} also has a list in another run file"
    repeated = names.filter(pl.col("query_id").is_duplicated())
    diagnostics.error_rows("questions in several run files", repeated, text)
    needed = entries.join(queries, on="query_id", how="semi").filter(
        (pl.col("rank") <= depth) | pl.col("page_id").is_not_null()
    )
    num_before = diagnostics.num_errors
    corpus = load_corpus(config.passages, needed, diagnostics, gold=loaded.provenance)
    readable = bool(corpus.height) or diagnostics.num_errors == num_before
    runs = resolve_pages(needed, corpus, diagnostics if readable else Diagnostics())
    retrieved = queries.join(given_passages, left_on="query_id", right_on="doc_id", how="anti")
    checked = runs if runs.height else entries.select(RUN_COLUMNS.names())
    if readable and checked.height:
        check_inputs(retrieved, checked, corpus, diagnostics, depth=depth)
    return pl.concat([runs, lists]).filter(pl.col("rank") <= depth), pl.concat([corpus, given])


def _joined(
    runs: pl.DataFrame, gold: pl.DataFrame, corpus: pl.DataFrame, loaded: LoadedQueries
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return EXAMPLES, and the passages that they refer to by row."""
    listed = pl.concat([runs.select("doc_id"), gold.select("doc_id")])
    used = corpus.join(listed, on="doc_id", how="semi", maintain_order="left")
    rows = used.select("doc_id", row=pl.int_range(pl.len(), dtype=pl.Int32))
    spans = loaded.evidence.group_by("query_id", maintain_order=True).agg(evidence=pl.col("span"))
    frame = loaded.queries.join(spans, on="query_id", how="left", maintain_order="left")
    for name, lists in (("passages", runs), ("gold", gold)):
        documents = lists.join(rows, on="doc_id").sort("query_id", "rank")
        of_query = documents.group_by("query_id", maintain_order=True).agg(pl.col("row").alias(name))
        frame = frame.join(of_query, on="query_id", how="left", maintain_order="left")
    empty = [pl.col("passages", "gold").fill_null(NO_ROWS), pl.col("evidence").fill_null(NO_TEXTS)]
    return frame.with_columns(empty).select(EXAMPLES.columns.names), used


def _check_lists(name: str, frame: pl.DataFrame, depth: int, num_gold: int, diagnostics: Diagnostics) -> None:
    num_passages = pl.col("passages").list.len()
    if not depth or diagnostics.num_errors:
        return
    if name == "train":
        empty = frame.filter((num_passages == 0) & (pl.col("gold").list.len() == 0))
        reason = "neither a list in a run file nor a gold passage" if num_gold else "no list in a run file"
        text = f"train: query {{query_id!r}} has no passages: {reason}"
        diagnostics.error_rows("training questions without passages", empty, text)
    short = frame.filter((num_passages > 0) & (num_passages < depth)).height
    if short:
        diagnostics.warning(f"{name}: lists of fewer than {depth} passages", count=short)
    without_gold = frame.filter(pl.col("gold").list.len() == 0).height
    if num_gold and without_gold:
        text = f"{name}: questions without a gold passage, which get their list only"
        diagnostics.warning(text, count=without_gold)


# --- memory-mapped Arrow files, for random access from many processes of a machine ---


def write_mapped(table: pa.Table | pl.DataFrame, schema: TableSchema, path: str | os.PathLike[str]) -> None:
    """Write a table as one uncompressed Arrow file, atomically; raise ValueError unless it conforms to the schema."""
    # one batch, so that access to a row needs no search
    conformed = conform(table, schema).combine_chunks()
    file = pathlib.Path(path)
    unfinished = file.parent / UNFINISHED / f"{file.name}-{uuid.uuid4().hex[:8]}"
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    Folder(str(file.parent)).record(file.name)
    with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, schema.columns) as writer:
        writer.write_table(conformed)
    replace_file(unfinished, file)
    Folder(str(file.parent)).prune(UNFINISHED)


def open_mapped(path: str | os.PathLike[str]) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()

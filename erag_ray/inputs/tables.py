"""Check that QUERIES, RUNS and CORPUS are consistent, and resolve the gold pages and documents."""

import dataclasses
from collections.abc import Sequence

import polars as pl

from erag_ray.data.datasets.answers import EMPTY_CELL
from erag_ray.data.datasets.queries import LoadedQueries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.files.ids import numbering_fault
from erag_ray.data.files.squad import page_keys
from erag_ray.measures.scores import MARKUP, UNREAD, has_word, normalize_answer
from erag_ray.models import answer_in
from erag_ray.store.schemas import GIVEN, GOLD

ODD_OUTPUTS = {
    "that look like errors of a server (write null for a missing output)": (
        r"(?i)^\W*(?:(?:error|(?-i:[\w.]*\w(?:Error|Exception)))(?:[:(]|\W*$)|traceback \(|<(?:!doctype )?html)"
        r"|^.{0,80}(?:too many requests|bad gateway|gateway time-?out|internal server error|service unavailable"
        r"|(?:http|error|status)(?: code)?[: ]+[45]\d\d\b|\b(?:request|connection|read) timed out"
        r"|rate.?limit.?(?:error|exceeded|reached)|connection (?:error|refused|reset)|exceeded your current quota"
        r"|server (?:had|encountered) an error|maximum context length|(?:context_length|quota)_exceeded"
        r"|insufficient_quota|content_filter|content_policy|invalid_(?:request|api_key))"
    ),
    "that look like an empty cell (nan, None)": EMPTY_CELL,
    "in HTML (<b>, &amp;)": r"(?i)</?(?:a|b|br|em|i|li|p|strong|su[bp])(?:\s[^<>]*)?/?>|&(?:amp|lt|gt|quot|#\d+);",
    **MARKUP,
}
"""Which outputs the scores seldom accept, whatever they say -> pattern of them."""
MANY = 10
"""So many questions without a list, or gold documents without a passage, are no chance but a mistake."""


def check_inputs(
    queries: pl.DataFrame, runs: pl.DataFrame, corpus: pl.DataFrame, diagnostics: Diagnostics, *, depth: int
) -> None:
    """Record inconsistencies between tables that are valid by themselves.

    Errors are documents of the first ``depth`` of a list that are missing in CORPUS, and runs without any of the
    sampled QUERIES. Warnings are queries without a list, lists of other queries, and ids with white space.
    """
    counts = runs.group_by("run_id", "query_id", maintain_order=True).len()
    for (name,), lists in counts.group_by("run_id", maintain_order=True):
        common = lists.join(queries, on="query_id", how="semi")
        if not common.height:
            examples = f"such as {lists['query_id'][0]!r} against {queries['query_id'][0]!r}"
            text = f"run {name!r} has no query in common with the questions ({examples})"
            diagnostics.error("runs without a query in common with the questions", text)
            continue
        for kind, left, right in (
            (f"run {name!r}: queries without a list", queries, lists),
            (f"run {name!r}: lists of queries outside the sample, not used", lists, queries),
        ):
            unmatched = left.join(right, on="query_id", how="anti", maintain_order="left")["query_id"]
            diagnostics.warn_each(kind, unmatched)
        if num_short := common.filter(pl.col("len") < depth).height:
            kind = f"runs with lists of fewer than {depth} documents"
            diagnostics.warning(kind, f"{name}: {num_short:,} of {common.height:,}")
    of_queries = runs.join(queries, on="query_id", how="semi", maintain_order="left")
    entries = of_queries.filter(pl.col("rank") <= depth)
    absent = entries.join(corpus.select("doc_id"), on="doc_id", how="anti", maintain_order="left")
    unknown = absent.unique(["run_id", "doc_id"], keep="first", maintain_order=True)
    for (name,), rows in unknown.group_by("run_id", maintain_order=True):
        kind = f"documents of run {name!r} that are not in the passages"
        text = "run {run_id!r}, query {query_id!r}: document {doc_id!r} is not in the passages"
        diagnostics.error_rows(kind, rows, text)
    ids = pl.concat([queries["query_id"], entries["doc_id"].alias("query_id")])
    spaced = ids.filter(ids.str.contains(r"[ \t\n\r\f\v]")).unique(maintain_order=True)
    quoted = pl.Series(map(repr, spaced), dtype=pl.String)
    diagnostics.warn_each("ids with white space, which TREC files cannot hold", quoted)


def note_empty_cells(queries: pl.DataFrame, corpus: pl.DataFrame, diagnostics: Diagnostics) -> None:
    """Note the questions and passages whose text is what pandas or a spreadsheet writes for a missing one."""
    for what, table, column in (("questions", queries, "question"), ("passages", corpus, "text")):
        is_cell = pl.col(column).str.strip_chars().str.contains(EMPTY_CELL)
        diagnostics.warn_each(
            f"{what} whose text looks like an empty cell (nan, None)", table.filter(is_cell)[:, 0]
        )


def check_datasets(
    queries: pl.DataFrame, entries: pl.DataFrame, given: pl.DataFrame, diagnostics: Diagnostics
) -> None:
    """Record an error for each run with lists of other datasets than one of at least `MANY` questions."""
    datasets = queries.group_by("dataset", maintain_order=True).len().filter(pl.col("len") >= MANY)
    pairs = pl.concat(rows.select("run_id", "query_id") for rows in (entries, given))
    present = pairs.join(queries.select("query_id", "dataset"), on="query_id", maintain_order="left")
    runs = present.join(entries, on="run_id", how="semi").select("run_id").unique(maintain_order=True)
    expected = runs.join(datasets, how="cross")
    absent = expected.join(present, on=["run_id", "dataset"], how="anti", maintain_order="left")
    text = "run {run_id!r} has no list of the {len} questions of {dataset}. Join its files, or compare by dataset"
    diagnostics.error_rows("runs without a list of a dataset", absent, text)


def check_numbering(
    queries: pl.DataFrame, entries: pl.DataFrame, given: pl.DataFrame, diagnostics: Diagnostics
) -> None:
    """Record an error for each run, or its outputs, that is numbered from 0 and the questions from 1, or the reverse.

    Of all questions, entries and outputs that were loaded; outputs of single documents are checked together.
    """
    question_ids = queries["query_id"].to_list()
    for what, rows in (("", entries), ("outputs: ", given)):
        pairs = rows.select("run_id", "query_id").unique(maintain_order=True)
        for (name,), lists in pairs.group_by("run_id", maintain_order=True):
            if fault := numbering_fault(question_ids, lists["query_id"].to_list()):
                of = f"run {name!r}" if name else "the file of documents"
                diagnostics.error("runs with another numbering", f"{what}{of} {fault}")


def used_outputs(
    given: pl.DataFrame,
    paths: Sequence[str],
    queries: pl.DataFrame,
    entries: pl.DataFrame,
    diagnostics: Diagnostics,
) -> pl.DataFrame:
    """Return the rows of GIVEN, of the files ``paths``, that belong to the evaluated sample and the lists of a job.

    Records an error if no output is of one of the questions, and warnings about those not used.
    """
    used = given.join(queries, on="query_id", how="semi", maintain_order="left")
    is_raw = {name: pl.col("output").str.contains(pattern) for name, pattern in ODD_OUTPUTS.items()}
    differs = pl.col("output").map_elements(lambda text: answer_in(text).text != text.strip(), pl.Boolean)
    for name, is_odd in {"with thinking, tags or control tokens": differs, **is_raw}.items():
        text = f"outputs {name}, which are scored as they are, of queries"
        diagnostics.warn_each(text, used.filter(is_odd)["query_id"].unique(maintain_order=True))
    scored = used.join(queries.select("query_id", "score"), on="query_id", maintain_order="left")
    for score, pattern in UNREAD.items():
        unread = scored.filter(pl.col("output").str.contains(pattern), score=score)
        text = f"outputs in a script that {score} is not made for, which are scored as they are, of queries"
        diagnostics.warn_each(text, unread["query_id"].unique(maintain_order=True))
    if paths and given.is_empty() and not diagnostics.num_errors:
        diagnostics.error("no outputs", f"outputs: there is none in {', '.join(paths)}")
    if given.height and queries.height and not used.height:
        text = f"such as {given['query_id'][0]!r} against {queries['query_id'][0]!r}"
        diagnostics.error("outputs without a question", f"outputs: none is of one of the questions ({text})")
    others = given.join(queries, on="query_id", how="anti", maintain_order="left")["query_id"].unique()
    diagnostics.warn_each("outputs: questions outside the sample, whose outputs are not used", others.sort())
    of_lists = used.join(entries, on=["query_id", "doc_id"], how="semi", maintain_order="left")
    of_one = used.filter(run_id="")
    unlisted = of_one.join(of_lists, on=["query_id", "doc_id"], how="anti", maintain_order="left")
    text = "outputs: documents that are in no list of their question, whose outputs are not used"
    names = unlisted.select(pl.format("{}: {}", "query_id", "doc_id")).to_series()
    diagnostics.warn_each(text, names)
    if used.height and unlisted.height == used.height:
        text = f"outputs: all have the doc_id of a document in no list of their question ({names[0]}). Leave it out"
        diagnostics.error("outputs of other documents", f"{text} of the outputs of systems")
    return used.join(unlisted, on=list(GIVEN.key), how="anti", maintain_order="left")


def resolve_gold(
    loaded: LoadedQueries, corpus: pl.DataFrame, diagnostics: Diagnostics, corpora: Sequence[str] = ()
) -> LoadedQueries:
    """Return the questions with their gold documents by the ids of ``corpus``, also as pages if they are pages there.

    Gold documents are pages if each that is a passage is its own page (BEIR), or if none is a passage and passages
    belong to them (BEIR's documents, split). If many are neither, none is used: all documents would seem wrong. Pages
    that a question names itself are never changed. Notes are on gold that cannot be compared, or is compared by page.
    Documents of named ``corpora`` have the name before their id; of several none can be meant.
    """
    provenance, is_one_corpus = loaded.provenance, len(corpora) < 2
    by_page = page_keys("doc_id").alias("page_id")
    documents = provenance.drop_nulls("doc_id").with_columns(by_page, id="doc_id")
    if corpora:
        documents = documents.with_columns(doc_id=pl.lit(f"{corpora[0]}/") + pl.col("doc_id"))
    passages = corpus.select("doc_id", own_page="page_id")
    present = documents.join(passages if is_one_corpus else passages.clear(), on="doc_id")
    of_split = documents.join(corpus, on="page_id", how="semi")
    is_own_page = (present["own_page"] == present["page_id"]).fill_null(False)
    are_pages = is_own_page.all() if present.height else of_split.height > 0
    is_used = is_one_corpus and (are_pages or present.height > 0 or documents.height < MANY)
    missing = documents.join(present, on="doc_id", how="anti", maintain_order="left")["id"]
    text = "gold passages that are not in the passages"
    if are_pages and not present.height:
        text = "gold documents that are pages of the passages, whose passages are gold"
    elif not is_one_corpus:
        text = "gold passages, not used: they name documents of one corpus, and the runs search several"
    elif not is_used:
        text = "gold passages, not used: none is in the passages"
    diagnostics.warn_each(text, missing)
    named_pages = provenance.drop_nulls("page_id")
    pages = documents.join(named_pages, on="query_id", how="anti", maintain_order="left").filter(are_pages)
    null = pl.lit(None, pl.String)
    parts = [
        documents.filter(pl.lit(is_used)).with_columns(page_id=null),
        pages.with_columns(doc_id=null, rank=pl.col("rank") + pl.len().over("query_id").cast(pl.Int32)),
        named_pages,
    ]
    sets = pages.select("query_id", output=pl.col("rank") - 1, page_id="page_id")
    resolved = pl.concat(part.select(provenance.columns) for part in parts)
    _note_pages(resolved, corpus, diagnostics)
    return dataclasses.replace(loaded, provenance=resolved, page_sets=pl.concat([loaded.page_sets, sets]))


def _note_pages(provenance: pl.DataFrame, corpus: pl.DataFrame, diagnostics: Diagnostics) -> None:
    """Note the questions with gold pages only, if no passage belongs to one of them."""
    pages = provenance.join(provenance.drop_nulls("doc_id"), on="query_id", how="anti", maintain_order="left")
    queries = pages["query_id"].unique(maintain_order=True)
    if corpus.height and not corpus.join(pages, on="page_id", how="semi").height:
        why = "not judged: no passage has a page_id"
        if corpus["page_id"].count():
            why = "not among the pages of the passages: of no question are they"
        diagnostics.warn_each(f"questions whose gold pages are {why}", queries)


def gold_lists(queries: pl.DataFrame, provenance: pl.DataFrame, corpus: pl.DataFrame) -> pl.DataFrame:
    """Return the gold passages of each query: ``query_id, rank, doc_id``; queries without any have no row.

    They are the gold documents that are in ``corpus``. If there are none, they are the passages of the gold pages in
    the order of ``corpus``, those that contain an answer first (KILT's rule: the normalised answer is a substring of
    the normalised text).
    """
    documents = provenance.drop_nulls("doc_id").join(queries, on="query_id", how="semi")
    named = documents.join(corpus, on="doc_id", how="semi")
    others = queries.join(named, on="query_id", how="anti", maintain_order="left")
    pages = provenance.drop_nulls("page_id").select("query_id", "page_id")
    lists = pl.concat([named.select("query_id", "doc_id", order="rank"), _of_pages(others, pages, corpus)])
    rank = pl.col("order").rank("ordinal").over("query_id").cast(pl.Int32)
    return lists.with_columns(rank=rank).sort("query_id", "rank").select(GOLD.columns.names)


def _of_pages(queries: pl.DataFrame, pages: pl.DataFrame, corpus: pl.DataFrame) -> pl.DataFrame:
    """Return the passages of gold pages, those with an answer first: ``query_id, doc_id, order``."""
    candidates = (
        pages.join(queries.select("query_id", "answers"), on="query_id")
        .join(corpus.with_row_index("row"), on="page_id")
        .sort("query_id", "row")
    )
    texts = dict(candidates.select("doc_id", "text").unique("doc_id").iter_rows())
    normal = {doc_id: normalize_answer(text) for doc_id, text in texts.items()}
    answers = {
        query_id: [normalize_answer(answer) for answer in gold_answers]
        for query_id, gold_answers in queries.select("query_id", "answers").iter_rows()
    }
    without = [
        # an answer without a word would match almost every text
        not any(has_word(answer) and answer in normal[doc_id] for answer in answers[query_id])
        for query_id, doc_id in candidates.select("query_id", "doc_id").iter_rows()
    ]
    ordered = candidates.with_columns(without=pl.Series(without, dtype=pl.Boolean)).sort("without", "row")
    return ordered.select("query_id", "doc_id", order=pl.int_range(pl.len(), dtype=pl.Int32))

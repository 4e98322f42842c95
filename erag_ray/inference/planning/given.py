"""Outputs that exist, in the form of answers: they need no request, and are never in the store of responses."""

from collections.abc import Iterator

import polars as pl

from erag_ray.config.job import JobConfig
from erag_ray.data.runs.references import END_TO_END, NO_PASSAGES, REFERENCES
from erag_ray.inference.output_tables import ANSWERS, SINGLE_DOCUMENT
from erag_ray.inference.planning.pending import DocIds
from erag_ray.inference.planning.uses import reader_id
from erag_ray.inputs.evidence import Inputs
from erag_ray.store.fingerprints import frame_digests

GIVEN_LIST = ["query_id", "run_id", "depth", "doc_id"]


def given_lists(inputs: Inputs, query_ids: pl.Series, lists: pl.DataFrame) -> pl.DataFrame:
    """Return the lists that have outputs only: columns run_id, query_id, depth, doc_ids (empty).

    ``query_ids`` are of the questions that the reader answers, ``lists`` those whose documents are known.
    """
    ids, of_run, key = query_ids.to_frame("query_id"), ["run_id", "depth"], ["run_id", "query_id", "depth"]
    named = inputs.given.filter(pl.col("run_id") != "").select(key)
    others = named.select(of_run).unique().join(lists, on=of_run, how="anti").join(ids, how="cross")
    # a system may have been given gold passages of questions that have none here
    every = pl.concat([others.select(key), named.join(ids, on="query_id", how="semi")]).unique()
    grid = every.join(lists, on=key, how="anti").sort(*of_run, "query_id")
    return grid.select(*key, doc_ids=pl.lit([], dtype=DocIds))


def given_answers(
    config: JobConfig, inputs: Inputs, documents: pl.DataFrame, lists: pl.DataFrame
) -> pl.DataFrame:
    """Return the answers of a stage that need no request; without a reader, all: those that are not given are null.

    ``documents`` has query_id, doc_ids (of one document, or of none), and ``lists``, of end-to-end evaluation, run_id,
    query_id, depth, doc_ids. Each of the `ANSWERS` has the run (of a single document "") and the depth of its list.
    """
    if not config.outputs:
        return pl.DataFrame(schema=ANSWERS)
    doc_id = pl.col("doc_ids").list.first()
    run_id = pl.when(doc_id.is_null()).then(pl.lit(NO_PASSAGES)).otherwise(pl.lit(""))
    of_one = documents.with_columns(run_id.alias("run_id"), doc_id=doc_id.fill_null(""))
    singles = of_one.select("query_id", "doc_ids", "run_id", "doc_id", depth=pl.lit(0, pl.Int32))
    of_runs = lists.select("query_id", "doc_ids", "run_id", pl.lit("").alias("doc_id"), "depth")
    wanted = pl.concat([singles, of_runs]).unique(GIVEN_LIST, maintain_order=True)
    joined = wanted.join(
        inputs.given, on=GIVEN_LIST, how="inner" if config.asks_reader else "left", maintain_order="left"
    )
    is_single, is_reference = pl.col("run_id") == "", pl.col("run_id").is_in(REFERENCES)
    kind = pl.when(is_single).then(pl.lit(SINGLE_DOCUMENT)).when(is_reference).then("run_id")
    if config.asks_reader:
        readers = {name: reader_id(config, dataset) for name, dataset in inputs.datasets.items()}
    else:
        # by the outputs themselves
        digest = frame_digests({"given": inputs.given})["given"]
        readers = dict.fromkeys(inputs.datasets, f"given-{digest[:16]}")
    reader = pl.col("dataset").replace_strict(readers, return_dtype=pl.String)
    datasets = inputs.queries.select("query_id", reader=reader)
    return (
        joined.join(datasets, on="query_id", maintain_order="left")
        .with_columns(
            pl.col("num_prompt_tokens", "num_output_tokens").fill_null(0),
            kind=kind.otherwise(pl.lit(END_TO_END)),
            depth=pl.when(is_single).then(pl.lit(1, pl.Int32)).otherwise("depth"),
        )
        .select(ANSWERS.names())
    )


def given_notes(given: pl.DataFrame) -> Iterator[str]:
    """Yield how many outputs of `given_answers` there are, and how many are missing."""
    num_missing, of_one = given["output"].null_count(), given.filter(kind=SINGLE_DOCUMENT).height
    if given.height:
        counts = f"{given.height - num_missing:,} given, which are not asked again; {num_missing:,} missing, not judged"
        yield f"outputs: {counts} ({given.height - of_one:,} of lists, {of_one:,} of single documents)"

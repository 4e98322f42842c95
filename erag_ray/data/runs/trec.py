"""RUNS as TREC run files, and LABELS as TREC qrels."""

import polars as pl


def trec_run(runs: pl.DataFrame) -> bytes:
    """Return the lists of one run as ``query Q0 document rank score tag``; the tag is its ``run_id``.

    The score is ``n - rank + 1``, not the retriever's, so that any program, with any rule for ties and in single
    precision, restores exactly the order of ``rank``. Raise ValueError if an id or the tag is empty or contains white
    space.
    """
    _check_ids(runs, "run_id", "query_id", "doc_id")
    score = pl.len().over("query_id") - pl.col("rank") + 1
    ordered = runs.sort("query_id", "rank")
    return _lines(ordered.select("query_id", pl.lit("Q0"), "doc_id", "rank", score.alias("score"), "run_id"))


def trec_qrels(labels: pl.DataFrame, threshold: float | None = None) -> bytes:
    """Return the LABELS of one annotator as ``query 0 document label``; null labels (not judged) are left out.

    Labels >= ``threshold`` are written as 1, others as 0; it is optional if all labels are 0 or 1. Raise ValueError for
    graded labels without a threshold, or an id that is empty or contains white space.
    """
    judged = labels.drop_nulls("label").sort("query_id", "doc_id")
    _check_ids(judged, "query_id", "doc_id")
    graded = judged.filter(~pl.col("label").is_in([0.0, 1.0]))
    if threshold is None and graded.height:
        raise ValueError(f"graded labels such as {graded['label'][0]} need a threshold to become qrels")
    label = (pl.col("label") >= (1 if threshold is None else threshold)).cast(pl.Int8)
    return _lines(judged.select("query_id", pl.lit(0), "doc_id", label))


def _check_ids(table: pl.DataFrame, *columns: str) -> None:
    for column in columns:
        ids = table[column]
        bad = ids.filter(ids.str.contains(r"[ \t\n\r\f\v]") | (ids == ""))
        if len(bad):
            text = "is empty or contains white space, which TREC files do not allow"
            raise ValueError(f"{column} {bad[0]!r} {text}")


def _lines(rows: pl.DataFrame) -> bytes:
    return rows.write_csv(separator=" ", include_header=False, quote_style="never").encode()

"""Changed lists, and ORDER_EFFECTS: how far order and company of a list move the score. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import xxhash

from erag_ray.analyses.columns import DatasetColumns, by_dataset, measured_and_used, table_of
from erag_ray.analyses.settings import ANY, Settings
from erag_ray.annotators import PAIR, Evidence, contains_answer_dpr, with_passage
from erag_ray.extras.credit.lists import document_keys, mixed
from erag_ray.measures.agreement import Family, paired_differences, share_of
from erag_ray.store.schemas import table_schema

ORDER_UTILITY = table_schema("order_utility", "reader* score* run_id* query_id* depth* order* value?")
"""Score of the output with a changed list, see `config.job.ORDERS`."""
ORDER_EFFECTS = table_schema(
    "order_effects",
    "dataset* reader* score* run_id* depth* order* difference? low? high? p_value? low_adjusted? "
    "high_adjusted? p_adjusted? share_changed? share_low? share_high? num_queries num_dropped reason?",
)
"""Change of utility where a list is put in another order, or into other company."""
TOO_FEW = "fewer than 2 questions are judged both ways"
NEVER_CHANGES = "no question's score changes"
LIST = ("reader", "score", "run_id", "depth")
SHUFFLE = 1 << 32
"""Number of the order of a shuffled list, for the draw: no order of Shapley's has it, which count from 0."""
NUM_SPARE = 5
"""Number of candidates per question beyond the documents that it gets; the first unrelated ones are selected."""


def unrelated_pairs(evidence: Evidence, per_question: int) -> pl.DataFrame:
    """Return up to ``per_question`` unrelated documents of each question that has pairs: columns query_id, doc_id.

    They were retrieved for other questions of its dataset and not for this one, are neither its gold documents nor of
    its gold pages, and do not contain its answers. Selection is by consistent hashing: they follow the hash of the
    question on a ring of document hashes, so most of them stay the same if another run is added.
    """
    pairs = evidence.pairs.join(evidence.queries.select("query_id", "dataset"), on="query_id")
    parts = [_following(part, per_question + NUM_SPARE) for part in pairs.partition_by("dataset")]
    schema = {"query_id": pl.String, "doc_id": pl.String, "offset": pl.Int64}
    others = pl.concat([pl.DataFrame(schema=schema), *parts]).join(pairs, on=PAIR, how="anti")
    paged = with_passage(others, evidence.corpus, "page_id")
    for gold in (["query_id", "page_id"], PAIR):
        paged = paged.join(evidence.provenance, on=gold, how="anti")
    without = contains_answer_dpr(replace(evidence, pairs=paged.select(PAIR))).filter(pl.col("label") == 0)
    unrelated = paged.join(without, on=PAIR, how="semi").sort("query_id", "offset")
    return unrelated.group_by("query_id", maintain_order=True).head(per_question).select(PAIR)


def _following(pairs: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return ``count`` documents that follow each question on the ring: columns query_id, doc_id, offset."""
    documents, queries = (pairs[name].unique() for name in ("doc_id", "query_id"))
    hashes = _hashes(documents)
    order = np.argsort(hashes)
    offsets = np.arange(min(count, len(order)))
    rows = np.searchsorted(hashes[order], _hashes(queries))[:, None] + offsets
    return pl.DataFrame(
        {
            "query_id": queries.gather(np.repeat(np.arange(len(queries)), len(offsets))),
            "doc_id": documents.gather(order[rows.ravel() % len(order)]),
            "offset": np.tile(offsets, len(queries)),
        }
    )


def _hashes(ids: pl.Series) -> np.ndarray:
    return np.fromiter((xxhash.xxh3_64_intdigest(name.encode()) for name in ids), np.uint64, len(ids))


def order_lists(
    ranked: pl.DataFrame, orders: Sequence[str], unrelated: pl.DataFrame, seed: int
) -> pl.DataFrame:
    """Return lists (run_id, query_id, depth, doc_ids) in each of some `config.job.ORDERS`, with the column order.

    ``unrelated`` (query_id, doc_id) are put before or after; a question without any has no such list.
    """
    others = unrelated.group_by("query_id", maintain_order=True).agg(others="doc_id")
    lists = ranked.join(others, on="query_id", how="left", maintain_order="left")
    changed = {
        "reversed": pl.col("doc_ids").list.reverse(),
        "shuffled": pl.coalesce(_shuffled(ranked, seed), "doc_ids"),
        "unrelated_before": pl.concat_list("others", "doc_ids"),
        "unrelated_after": pl.concat_list("doc_ids", "others"),
    }
    names = ["run_id", "query_id", "depth"]
    parts = [lists.select(*names, order=pl.lit(name), doc_ids=changed[name]) for name in orders]
    return pl.concat(parts).drop_nulls("doc_ids")


def _shuffled(ranked: pl.DataFrame, seed: int) -> pl.Series:
    """Return the documents of each list in a random order; null for an empty list."""
    numbered = ranked.select("query_id", "doc_ids").with_row_index("list")
    documents = numbered.explode("doc_ids").rename({"doc_ids": "doc_id"}).drop_nulls("doc_id")
    keys = mixed(document_keys(documents, seed) ^ np.uint64(SHUFFLE))
    ordered = documents.with_columns(key=pl.Series(keys)).sort("list", "key")
    lists = ordered.group_by("list", maintain_order=True).agg(doc_ids="doc_id")
    return numbered.select("list").join(lists, on="list", how="left", maintain_order="left")["doc_ids"]


def order_effects(
    changed: pl.DataFrame, utility: pl.DataFrame, queries: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Return ORDER_EFFECTS: utility with the changed list minus utility with the unchanged list, paired over questions.

    p-values by `agreement.paired_test`, adjusted by Holm over all runs, depths and orders of one dataset and
    reader. Questions without a changed list count as dropped.

    ``changed`` is ORDER_UTILITY; QUERIES without a row in it are left out.
    """
    sampled = queries.join(changed, on="query_id", how="semi", maintain_order="left")
    columns = {
        "annotator": pl.lit(""),
        "measure": pl.col("order"),
        "cutoff": pl.col("depth"),
        "ideal": pl.lit(ANY),
    }
    datasets = by_dataset([changed.with_columns(**columns)], utility, sampled, settings)
    return table_of([row for dataset in datasets for row in _rows(dataset, settings)], ORDER_EFFECTS)


def _rows(dataset: DatasetColumns, settings: Settings) -> Sequence[Mapping[str, object]]:
    changed, unchanged = measured_and_used(dataset.of_runs)
    as_is = {_list_of(name): column for name, column in unchanged}
    alpha, clusters = 1 - settings.confidence, dataset.draws.clusters
    families: dict[tuple[object, ...], tuple[Family, list[dict[str, object]]]] = {}
    rows = []
    for name, column in changed:
        differences = paired_differences(column, as_is[_list_of(name)])
        is_judged = ~np.isnan(differences)
        judged = differences[is_judged]
        share = share_of(np.where(is_judged, differences != 0, np.nan), settings.confidence, clusters)
        row = {
            "dataset": dataset.dataset,
            **{key: name[key] for key in LIST},
            "order": name["measure"],
            "difference": float(judged.mean()) if len(judged) else None,
            **dict(zip(("share_changed", "share_low", "share_high"), share, strict=True)),
            "num_queries": len(judged),
            "num_dropped": len(differences) - len(judged),
            "reason": TOO_FEW if len(judged) < 2 else None if judged.any() else NEVER_CHANGES,
        }
        rows.append(row)
        if not row["reason"]:
            family, tested = families.setdefault((name["reader"], name["score"]), (Family(), []))
            family.add(differences, clusters=clusters)
            tested.append(row)
    for family, tested in families.values():
        for row, test in zip(tested, family.adjusted(alpha), strict=True):
            row |= test.figures(alpha)
    return rows


def _list_of(name: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(name[key] for key in LIST)

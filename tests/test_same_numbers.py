"""The numbers of the tiny comparison, to the last bit: a change of the code that moves none of them shows so here.

Worked out once by the code before models and kinds of requests were parted. Ids of readers are left out: they change
whenever a fingerprint covers something else.
"""

from __future__ import annotations

import hashlib

import polars as pl
from tiny import Tiny, compare, table

from erag_ray.schemas import CORRELATIONS, LABELS, PER_QUERY, UTILITY, TableSchema

ANNOTATORS = ["erag", "contains_answer_dpr", "contains_answer_kilt", "provenance", "gain"]
DIGESTS = {
    "labels": "2f741e7e1b2ee223",
    "utility": "bcb94b269c18b518",
    "per_query": "da64504b89e2eb93",
    "correlations": "b4183f14f0d0f2e4",
}


def digest(tiny: Tiny, schema: TableSchema) -> str:
    """Of all rows but their readers, every float by its shortest exact form."""
    rows = table(tiny, schema).drop("reader").sort(pl.all(), nulls_last=True).rows()
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def test_labels_utility_measures_and_correlations_are_what_they_were(
    tiny: Tiny, reads_here: list[int]
) -> None:
    changed = tiny.with_config(annotators=ANNOTATORS)
    compare(changed)
    found = {schema.name: digest(changed, schema) for schema in (LABELS, UTILITY, PER_QUERY, CORRELATIONS)}
    assert found == DIGESTS

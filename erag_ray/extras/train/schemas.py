"""The table of training examples."""

from __future__ import annotations

from erag_ray.store.schemas import ROWS, STRING, STRINGS, table_schema

# training examples of a reader; passages and gold are row numbers of its CORPUS, best first
EXAMPLES = table_schema(
    "examples",
    "query_id",
    query_id=STRING,
    dataset=STRING,
    question=STRING,
    answers=STRINGS,
    score=STRING,
    passages=ROWS,
    gold=ROWS,
    evidence=STRINGS,
)

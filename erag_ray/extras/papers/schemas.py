"""The table of dual labels."""

from __future__ import annotations

from erag_ray.store.schemas import COUNT, STRING, VALUE, table_schema

DUAL_LABELS = table_schema(
    "dual_labels",
    "dataset run_id probability",
    dataset=STRING,
    run_id=STRING,
    probability=STRING,
    value_=VALUE,
    low_=VALUE,
    high_=VALUE,
    num_positive=COUNT,
    num_queries=COUNT,
)

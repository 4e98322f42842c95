"""The table of dual labels."""

from __future__ import annotations

from erag_ray.store.schemas import table_schema

DUAL_LABELS = table_schema(
    "dual_labels",
    "dataset* run_id* probability* value? low? high? num_positive num_queries",
)

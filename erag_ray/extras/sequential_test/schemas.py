"""The table of interim analyses."""

from __future__ import annotations

from erag_ray.store.schemas import table_schema

# difference of two runs after a number of queries; no interval while too few queries differ; readings are those of the
# dataset, for all pairs of runs; saved are those that reading all documents of the lists would add
INTERIM_ANALYSES = table_schema(
    "interim_analyses",
    "dataset* run_a* run_b* measure* cutoff* look* num_queries num_readings num_documents difference low? "
    "high? settled better? auxiliary? lambda? correlation? num_saved price_saved?",
)

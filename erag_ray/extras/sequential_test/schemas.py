"""The table of interim analyses."""

from __future__ import annotations

from erag_ray.store.schemas import COUNT, FLAG, RANK, STRING, VALUE, table_schema

# difference of two runs after a number of queries; no interval while too few queries differ; readings are those of the
# dataset, for all pairs of runs; saved are those that reading all documents of the lists would add
INTERIM_ANALYSES = table_schema(
    "interim_analyses",
    "dataset run_a run_b measure cutoff look",
    dataset=STRING,
    run_a=STRING,
    run_b=STRING,
    measure=STRING,
    cutoff=RANK,
    look=RANK,
    num_queries=COUNT,
    num_readings=COUNT,
    num_documents=COUNT,
    difference=VALUE,
    low_=VALUE,
    high_=VALUE,
    settled=FLAG,
    better_=STRING,
    auxiliary_=STRING,
    lambda_=VALUE,
    correlation_=VALUE,
    num_saved=COUNT,
    price_saved_=VALUE,
)

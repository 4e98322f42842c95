"""Tables of credits and of changed lists."""

from __future__ import annotations

from erag_ray.store.schemas import COUNT, RANK, STRING, VALUE, table_schema

# part of each document in the score of its list, see config.CREDITS
CREDITS = table_schema(
    "credits",
    "reader score run_id query_id credit doc_id",
    reader=STRING,
    score=STRING,
    run_id=STRING,
    query_id=STRING,
    depth=RANK,
    credit=STRING,
    doc_id=STRING,
    rank=RANK,
    value_=VALUE,
    standard_error_=VALUE,
)
# score of the output with a changed list, see config.ORDERS
ORDER_UTILITY = table_schema(
    "order_utility",
    "reader score run_id query_id depth order",
    reader=STRING,
    score=STRING,
    run_id=STRING,
    query_id=STRING,
    depth=RANK,
    order=STRING,
    value_=VALUE,
)
# agreement of labels with credits: over "lists" (the mean of each list's own) or over "documents" (of all lists)
CREDIT_AGREEMENT = table_schema(
    "credit_agreement",
    "dataset reader score run_id depth slice value credit annotator statistic over",
    dataset=STRING,
    reader=STRING,
    score=STRING,
    run_id=STRING,
    depth=RANK,
    slice=STRING,
    value=STRING,
    credit=STRING,
    annotator=STRING,
    statistic=STRING,
    over=STRING,
    agreement_=VALUE,
    low_=VALUE,
    high_=VALUE,
    num_queries=COUNT,
    num_documents=COUNT,
    num_dropped=COUNT,
    reason_=STRING,
)
# shares of documents by eRAG's label and by credit, see credit.EFFECTS
CREDIT_SHARES = table_schema(
    "credit_shares",
    "dataset reader score run_id depth slice value credit effect",
    dataset=STRING,
    reader=STRING,
    score=STRING,
    run_id=STRING,
    depth=RANK,
    slice=STRING,
    value=STRING,
    credit=STRING,
    effect=STRING,
    share_=VALUE,
    low_=VALUE,
    high_=VALUE,
    num_positive=COUNT,
    num_documents=COUNT,
    num_queries=COUNT,
)
# change of utility where a list is put in another order, or into other company
ORDER_EFFECTS = table_schema(
    "order_effects",
    "dataset reader score run_id depth order",
    dataset=STRING,
    reader=STRING,
    score=STRING,
    run_id=STRING,
    depth=RANK,
    order=STRING,
    difference_=VALUE,
    low_=VALUE,
    high_=VALUE,
    p_value_=VALUE,
    low_adjusted_=VALUE,
    high_adjusted_=VALUE,
    p_adjusted_=VALUE,
    share_changed_=VALUE,
    share_low_=VALUE,
    share_high_=VALUE,
    num_queries=COUNT,
    num_dropped=COUNT,
    reason_=STRING,
)

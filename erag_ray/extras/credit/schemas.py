"""Tables of credits and of changed lists."""

from __future__ import annotations

from erag_ray.store.schemas import STRING, table_schema

# part of each document in the score of its list, see config.CREDITS
CREDITS = table_schema(
    "credits",
    "reader* score* run_id* query_id* depth credit* doc_id* rank value? standard_error?",
)
# score of the output with a changed list, see config.ORDERS
ORDER_UTILITY = table_schema("order_utility", "reader* score* run_id* query_id* depth* order* value?")
# agreement of labels with credits: over "lists" (the mean of each list's own) or over "documents" (of all lists)
CREDIT_AGREEMENT = table_schema(
    "credit_agreement",
    "dataset* reader* score* run_id* depth* slice* value* credit* annotator* statistic* over* agreement? "
    "low? high? num_queries num_documents num_dropped reason?",
    value=STRING,
)
# shares of documents by eRAG's label and by credit, see credit.EFFECTS
CREDIT_SHARES = table_schema(
    "credit_shares",
    "dataset* reader* score* run_id* depth* slice* value* credit* effect* share? low? high? num_positive "
    "num_documents num_queries",
    value=STRING,
)
# change of utility where a list is put in another order, or into other company
ORDER_EFFECTS = table_schema(
    "order_effects",
    "dataset* reader* score* run_id* depth* order* difference? low? high? p_value? low_adjusted? "
    "high_adjusted? p_adjusted? share_changed? share_low? share_high? num_queries num_dropped reason?",
)

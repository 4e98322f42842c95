"""Credit of documents inside their list, and how far order and company move the score.

eRAG's label says what a document does alone. Further lists, answered as all others, say what it does among the others:
`further_lists` (for the plan), `score_credits` (answers -> CREDITS, ORDER_UTILITY), `evaluate_credits` (those, labels
and utility -> CREDIT_AGREEMENT, CREDIT_SHARES, ORDER_EFFECTS). The functions behind them are pure.
"""

from erag_ray.credit.agreement import (
    CELL,
    EFFECTS,
    LISTS,
    credit_agreement,
    credit_shares,
    credited_datasets,
    labelled_credits,
    with_effects,
)
from erag_ray.credit.lists import CreditLists, credit_lists, order_lists, takes_all_subsets
from erag_ray.credit.orders import order_effects
from erag_ray.credit.stage import evaluate_credits, further_lists, score_credits
from erag_ray.credit.values import credits_of

__all__ = [
    "CELL",
    "EFFECTS",
    "LISTS",
    "CreditLists",
    "credit_agreement",
    "credit_lists",
    "credit_shares",
    "credited_datasets",
    "credits_of",
    "evaluate_credits",
    "further_lists",
    "labelled_credits",
    "order_effects",
    "order_lists",
    "score_credits",
    "takes_all_subsets",
    "with_effects",
]

"""Credit of documents inside their list, and how far order and company move the score.

eRAG's label says what a document does alone. Further lists, answered as all others, say what it does among the others:
`further_lists` (for the plan), `score_credits` (answers -> CREDITS, ORDER_UTILITY), and the analyses that are made of
those. The functions behind them are pure.
"""

from erag_ray.extensions import Extension
from erag_ray.extras.credit.agreement import (
    CELL,
    EFFECTS,
    LISTS,
    credit_agreement,
    credit_shares,
    credited_datasets,
    labelled_credits,
    with_effects,
)
from erag_ray.extras.credit.lists import CreditLists, credit_lists, order_lists, takes_all_subsets
from erag_ray.extras.credit.orders import order_effects
from erag_ray.extras.credit.schemas import CREDITS
from erag_ray.extras.credit.stage import OF_CREDITS, OF_ORDERS, further_lists, score_credits
from erag_ray.extras.credit.values import credits_of

__all__ = [
    "CELL",
    "EFFECTS",
    "EXTENSION",
    "LISTS",
    "CreditLists",
    "credit_agreement",
    "credit_lists",
    "credit_shares",
    "credited_datasets",
    "credits_of",
    "further_lists",
    "labelled_credits",
    "order_effects",
    "order_lists",
    "score_credits",
    "takes_all_subsets",
    "with_effects",
]

EXTENSION = Extension(
    name="credit",
    lists=further_lists,
    score=score_credits,
    analyses=(*OF_CREDITS, *OF_ORDERS),
    list_values=(CREDITS, "credit"),
)

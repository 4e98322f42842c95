"""LABELS -> PER_QUERY: every measure of every ranked list, by every annotator. Pure.

`matrices` looks labels up, in rank order; `values` and `facts` measure them.
"""

from erag_ray.analyses.lists.values import (
    LabelGroup,
    eligible_questions,
    label_groups,
    per_query,
    per_query_parts,
    uses_ideal,
)

__all__ = ["LabelGroup", "eligible_questions", "label_groups", "per_query", "per_query_parts", "uses_ideal"]

"""The table of training examples."""

from __future__ import annotations

from erag_ray.store.schemas import table_schema

# training examples of a reader; passages and gold are row numbers of its CORPUS, best first
EXAMPLES = table_schema("examples", "query_id* dataset question answers score passages gold evidence")

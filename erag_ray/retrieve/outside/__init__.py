"""Retrievers as they are: objects of LangChain, LlamaIndex and Haystack, functions, HTTP services.

`as_search` turns an object into a function of a question and a number of documents, by what methods it has: none of the
libraries is imported. `search_all` asks it all questions. In a job `runs.OutsideRun` does both.
"""

from erag_ray.retrieve.outside.adapters import ADAPTERS, as_search
from erag_ray.retrieve.outside.http import HttpSearch
from erag_ray.retrieve.outside.searching import LIST_TEXT_COLUMNS, search_all

__all__ = ["ADAPTERS", "LIST_TEXT_COLUMNS", "HttpSearch", "as_search", "search_all"]

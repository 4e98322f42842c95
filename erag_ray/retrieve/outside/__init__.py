"""Unchanged retrievers: objects of LangChain, LlamaIndex and Haystack, functions, HTTP services.

`as_search` turns an object into a function of a question and a number of documents, by what methods it has: none of the
libraries is imported. `searching.Searching` asks it all questions. In a job `runs.OutsideRetriever` does both.
"""

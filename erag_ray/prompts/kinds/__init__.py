"""Kinds of request: each `Kind` is a pure pair, ``build`` requests and ``fold`` responses, the same for all models.

An annotator names the kinds that it needs (`annotators.RequestSpec`); so a new kind is one `Kind` in a file of its
own here, or outside the package next to the annotator that asks it.
"""

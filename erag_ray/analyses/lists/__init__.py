"""LABELS -> PER_QUERY: every measure of every ranked list, by every annotator. Pure.

`matrices` looks labels up, in rank order; `values` and `facts` measure them.
"""

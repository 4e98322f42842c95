"""Ranked lists: loading into RUNS, writing RUNS and LABELS as TREC files, and names of the reference baselines.

Lists may bring their texts and latencies along (`load_corpus`, `seconds_of`).
"""

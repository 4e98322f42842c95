"""Inference, on Ray Data or in this process: the pending requests of a stage to responses in the store.

`stage` runs and seals a planned stage, `pool` streams requests to a pool of `actor`s with one model each, `in_process`
runs them without Ray.
"""

"""Stages with fingerprints, and a lock on the output folder.

`Stage` and `ensure` recompute tables that are not current, `stale` lists tables with changed sources, `locked` excludes
other jobs from an output folder, and `shared` keeps what the steps of a job share.
"""

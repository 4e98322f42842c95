"""Errors and messages, names of entries, user code, progress, processes: the ground of all other packages."""

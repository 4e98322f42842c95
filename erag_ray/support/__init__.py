"""Errors and messages, names of entries, user code, progress, processes: what all other packages stand on."""

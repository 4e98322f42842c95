"""Load, check and seal the input tables of a job (`prepare`); all problems are reported in one message."""

"""Compare a candidate with a baseline: passed, failed or not settled, by end-to-end scores of the same questions."""

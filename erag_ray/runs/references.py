"""Names of the reference readings beside runs: closed-book, and with the gold passages."""

END_TO_END = "end_to_end"
"""The annotator's place in MEANS for rows of utility."""
NO_PASSAGES = "no_passages"
"""run_id of the reader's closed-book answers, depth 0."""
GOLD_PASSAGES = "gold_passages"
"""run_id of the answers with the gold passages."""
REFERENCES = (NO_PASSAGES, GOLD_PASSAGES)
REFERENCE_NAMES = {NO_PASSAGES: "no passages", GOLD_PASSAGES: "gold passages"}
"""What tables call them."""

"""Names of the reference baselines: the reader without passages (closed-book) and with the gold passages."""

END_TO_END = "end_to_end"
"""Value of the column annotator in MEANS for rows of UTILITY."""
NO_PASSAGES = "no_passages"
"""run_id of the reader's closed-book answers, depth 0."""
GOLD_PASSAGES = "gold_passages"
"""run_id of the reader's answers with the gold passages."""
REFERENCES = (NO_PASSAGES, GOLD_PASSAGES)
REFERENCE_NAMES = {NO_PASSAGES: "no passages", GOLD_PASSAGES: "gold passages"}
"""Their names in tables for people."""

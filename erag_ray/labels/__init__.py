"""Turn responses into LABELS (single documents) and UTILITY (whole lists), after judgements if a judge scores.

`label` and `score_end_to_end` are stages; `judge_outputs` gets the judge's verdicts on the outputs of a finished stage.
"""

"""Names of the folders below a job's ``out`` that hold no table of their own."""

READING_STAGES = ("annotate", "end_to_end", "compare", "settle")


def judge_stage(stage: str) -> str:
    """Return the name of the stage that judges the outputs of another."""
    return f"{stage}_judge"


JOB_STAGES = tuple(name for stage in READING_STAGES for name in (stage, judge_stage(stage)))
"""Folders of the stages that ask models."""
EXPORT = "trec"
"""Folder of the TREC files; its manifest names what could not be written."""

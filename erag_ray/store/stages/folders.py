"""Names of folders in a job's ``out`` that are not tables."""

INFERENCE_STAGES = ("annotate", "end_to_end", "compare", "settle", "settle_auxiliary")


def judge_stage(stage: str) -> str:
    return f"{stage}_judge"


JOB_STAGES = tuple(name for stage in INFERENCE_STAGES for name in (stage, judge_stage(stage)))
"""Folders of the stages that run models."""
EXPORT = "trec"
"""Folder of the TREC files; its manifest lists results that could not be exported."""

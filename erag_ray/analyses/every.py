"""All analyses in reading order; a new one is a file and a line here."""

from erag_ray.analyses import (
    agreement,
    best_depths,
    cell_shares,
    cells,
    comparisons,
    complements,
    contrasts,
    correlations,
    costs,
    means,
    outputs,
    question_by_question,
    repeats,
    retrieval_measures,
    slices,
    useful_documents,
)
from erag_ray.analyses.contract import Analysis
from erag_ray.analyses.lists import values
from erag_ray.extensions import installed
from erag_ray.store.schemas import TABLES, TableSchema
from erag_ray.store.stages.stage import EXPORT, JOB_STAGES

ANALYSES: tuple[Analysis, ...] = (
    values.ANALYSIS,
    means.ANALYSIS,
    means.OF_LISTS,
    comparisons.OF_DIFFERENCES,
    comparisons.ANALYSIS,
    question_by_question.ANALYSIS,
    best_depths.ANALYSIS,
    cells.ANALYSIS,
    cell_shares.ANALYSIS,
    complements.ANALYSIS,
    slices.OF_MEANS,
    slices.OF_COMPARISONS,
    agreement.ANALYSIS,
    useful_documents.ANALYSIS,
    correlations.ANALYSIS,
    contrasts.ANALYSIS,
    outputs.ANALYSIS,
    outputs.OF_JUDGEMENTS,
    repeats.ANALYSIS,
    useful_documents.OF_HARM,
    costs.OF_TOKENS,
    costs.OF_LATENCY,
    retrieval_measures.ANALYSIS,
    costs.ANALYSIS,
)
"""Those of the core. A table is made after the tables that it is made from."""


def every_analysis() -> tuple[Analysis, ...]:
    """Return the analyses of the core, and of extensions those whose table replaces no earlier one, and no folder."""
    names = {*TABLES, *JOB_STAGES, EXPORT, "report", *(one.schema.name for one in ANALYSES if one.schema)}
    others = [analysis for extension in installed() for analysis in extension.analyses]
    firsts = {one.schema.name: one for one in reversed(others) if one.schema and one.schema.name not in names}
    return (*ANALYSES, *(one for one in others if not one.schema or firsts.get(one.schema.name) is one))


def all_tables() -> dict[str, TableSchema]:
    """Return the tables of the core and of all extensions, by name."""
    schemas = [analysis.schema for analysis in every_analysis() if analysis.schema]
    of_extensions = [schema for extension in installed() for schema in extension.tables]
    return TABLES | {schema.name: schema for schema in (*schemas, *of_extensions)}

"""Stages: answers to subsets and changed lists -> CREDITS and ORDER_UTILITY, and the tables that follow from them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from erag_ray.analyses.cells import CELLS, cells_of
from erag_ray.analyses.columns import by_dataset
from erag_ray.analyses.contract import RESAMPLED, Analysis, Evaluation
from erag_ray.analyses.evaluation import check_made
from erag_ray.analyses.slices import slices_of
from erag_ray.annotators import score_rows
from erag_ray.config.job import JobConfig
from erag_ray.extensions import Extension
from erag_ray.extras.credit.agreement import (
    CREDIT_AGREEMENT,
    CREDIT_SHARES,
    Credited,
    credit_agreement,
    credit_shares,
    labelled_credits,
    with_effects,
)
from erag_ray.extras.credit.lists import CREDITS, CreditLists, credit_lists, credits_of
from erag_ray.extras.credit.orders import (
    ORDER_EFFECTS,
    ORDER_UTILITY,
    order_effects,
    order_lists,
    unrelated_pairs,
)
from erag_ray.extras.credit.show import show_agreement, show_orders, show_shares
from erag_ray.inputs.evidence import Inputs, evidence_of, sampled
from erag_ray.inputs.settings import end_to_end_settings, scores_of
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.store.fingerprints import frame_digests
from erag_ray.store.schemas import (
    CORPUS,
    LABELS,
    PROVENANCE,
    QUERIES,
    REPEATS,
    RESPONSES,
    RUNS,
    SLICES,
    UTILITY,
    TableSchema,
)
from erag_ray.store.stages.stage import Append, Stage, digests, ensure
from erag_ray.store.tables import TableStore
from erag_ray.support.logs import say
from erag_ray.support.progress import StageProgress, stage_progress

if TYPE_CHECKING:
    from erag_ray.inference.stage import Finished

CREDIT = "Documents inside their list"
SETTINGS = {
    CREDITS: ("credits", "credit_depth", "shapley_permutations"),
    ORDER_UTILITY: ("orders", "num_unrelated"),
}


def further_lists(config: JobConfig, inputs: Inputs) -> dict[str, pl.DataFrame]:
    """Return the lists that credits and orders need answers to, for `planning.plan.plan_stage`: purpose -> lists.

    Empty for a job that has neither.
    """
    lists = {}
    if config.credits:
        lists["credits"] = subsets_of(config, inputs).subsets
    if config.orders:
        lists["orders"] = changed_lists(config, inputs)
    return {purpose: frame.select("query_id", "doc_ids").unique() for purpose, frame in lists.items()}


def subsets_of(config: JobConfig, inputs: Inputs) -> CreditLists:
    """Return the subsets of the lists of a job, for its credits."""
    ranked = _ranked(config, inputs, [config.credit_depth or max(config.depths)])
    return credit_lists(ranked, config.credits, config.shapley_permutations, config.seed)


def changed_lists(config: JobConfig, inputs: Inputs) -> pl.DataFrame:
    """Return the changed lists of a job, of every end-to-end depth: unchanged, they are answered there too."""
    needs_unrelated = any(order.startswith("unrelated") for order in config.orders)
    evidence = evidence_of(inputs)
    unrelated = unrelated_pairs(evidence, config.num_unrelated) if needs_unrelated else evidence.pairs.clear()
    return order_lists(_ranked(config, inputs, config.depths), config.orders, unrelated, config.seed)


def _ranked(config: JobConfig, inputs: Inputs, depths: Sequence[int]) -> pl.DataFrame:
    # with it comes torch, which the evaluation does not need
    from erag_ray.inference.planning.pending import ranked_lists

    queries = sampled(config, inputs.queries, config.credit_queries)
    return ranked_lists(inputs.runs.join(queries, on="query_id", how="semi"), queries["query_id"], depths)


def score_credits(config: JobConfig, inputs: Inputs, finished: Finished) -> None:
    """Score the answers to subsets and changed lists, sealed as CREDITS and ORDER_UTILITY; nothing if not asked for.

    ``finished`` has the requests for `further_lists`. Raise JobError if a user's score raises for more outputs than
    ``max_error_fraction`` allows.
    """
    store = TableStore(config.out)
    judged = {} if finished.judgements is None else {"judgements": finished.judgements}
    outputs = finished.responses.select(*RESPONSES.key, "output")
    for schema, names in ((CREDITS, config.credits), (ORDER_UTILITY, config.orders)):
        if not names:
            continue
        with stage_progress(schema.name, show=config.progress):
            stage = Stage(
                name=schema.name,
                tables=[schema],
                settings=credit_settings(config, inputs, schema),
                sources=digests(store, [QUERIES, RUNS, PROVENANCE, CORPUS]),
                inputs=frame_digests({"requests": finished.requests, "outputs": outputs, **judged}),
                names=scores_of(inputs.queries),
                make=functools.partial(_make, schema, config, inputs, finished),
            )
            if not ensure(stage, store):
                say(f"{stage.name}: as sealed before")


def credit_settings(config: JobConfig, inputs: Inputs, schema: TableSchema) -> dict[str, object]:
    """Return the settings that CREDITS or ORDER_UTILITY depend on."""
    common = end_to_end_settings(config, inputs.datasets)
    return {**common, **{key: getattr(config, key) for key in (*SETTINGS[schema], "credit_queries", "seed")}}


def _make(
    schema: TableSchema, config: JobConfig, inputs: Inputs, finished: Finished, append: Append
) -> Mapping[str, object]:
    if schema == CREDITS:
        lists = subsets_of(config, inputs)
        scores, notes = _scored(config, inputs, finished, lists.subsets, "subsets of lists")
        append(CREDITS, credits_of(lists, scores))
    else:
        scores, notes = _scored(config, inputs, finished, changed_lists(config, inputs), "changed lists")
        append(ORDER_UTILITY, scores.select(ORDER_UTILITY.columns.names).sort(ORDER_UTILITY.key))
    return {"notes": notes}


def _scored(
    config: JobConfig, inputs: Inputs, finished: Finished, lists: pl.DataFrame, what: str
) -> tuple[pl.DataFrame, list[str]]:
    """Return the lists with the columns reader, score and value, and notes; an output is scored once a question."""
    from erag_ray.labels.end_to_end import list_responses
    from erag_ray.labels.judgements import check_scores, score_notes, scoring_of

    scoring = scoring_of(finished.judgements)
    answers = list_responses(lists, finished.requests.filter(kind=ANSWER.name), finished.responses)
    output = ["reader", "query_id", "output"]
    scored = score_rows(answers.select(output).unique(maintain_order=True), inputs.queries, scoring)
    check_scores(scoring, config)
    joined = answers.join(scored, on=output, nulls_equal=True, maintain_order="left")
    return joined.select(*lists.columns, "reader", "score", "value"), list(
        score_notes(scoring, f"outputs of {what}")
    )


def _check(schema: TableSchema, config: JobConfig, inputs: Inputs, tables: TableStore) -> None:
    """Check that CREDITS or ORDER_UTILITY is sealed, and made with these settings."""
    check_made(tables, schema, "end_to_end", credit_settings(config, inputs, schema))


def _credited(evaluation: Evaluation) -> Credited:
    credits, cells = evaluation.tables.read(CREDITS), evaluation.once(cells_of)
    documents = labelled_credits(credits, evaluation.labels)
    queries = evaluation.inputs.queries.join(documents, on="query_id", how="semi", maintain_order="left")
    return Credited(
        documents=documents,
        datasets=by_dataset([], UTILITY.empty(), queries, evaluation.settings),
        slices=evaluation.once(slices_of),
        cells=cells.join(credits.select("depth").unique(), on="depth", how="semi", maintain_order="left"),
    )


def _make_shares(evaluation: Evaluation, _: StageProgress) -> list[pl.DataFrame]:
    credited = evaluation.once(_credited)
    effects = with_effects(credited.documents, evaluation.utility, evaluation.settings.threshold)
    return [credit_shares(credited._replace(documents=effects), evaluation.settings)]


def _make_effects(evaluation: Evaluation, _: StageProgress) -> list[pl.DataFrame]:
    changed, repeats = (evaluation.tables.read(schema) for schema in (ORDER_UTILITY, REPEATS))
    # changed lists are answered once
    once = repeats.filter(repeat=1).drop("repeat", "output") if repeats.height else evaluation.utility
    return [order_effects(changed, once, evaluation.inputs.queries, evaluation.settings)]


OF_CREDITS = (
    Analysis(
        schema=CREDITS,
        is_wanted=lambda config: bool(config.credits),
        check=functools.partial(_check, CREDITS),
    ),
    Analysis(
        schema=CREDIT_AGREEMENT,
        sources=(CREDITS, LABELS, CELLS, SLICES, QUERIES),
        settings=("statistics", "slices", *RESAMPLED),
        code=("annotators",),
        is_wanted=lambda config: bool(config.credits),
        make=lambda evaluation, _: [credit_agreement(evaluation.once(_credited), evaluation.settings)],
        is_optional=True,
        show=show_agreement,
        group=CREDIT,
    ),
    Analysis(
        schema=CREDIT_SHARES,
        sources=(CREDITS, LABELS, UTILITY, CELLS, SLICES, QUERIES),
        settings=("threshold", "slices", *RESAMPLED),
        is_wanted=lambda config: bool(config.credits),
        make=_make_shares,
        is_optional=True,
        show=show_shares,
        group=CREDIT,
    ),
)
OF_ORDERS = (
    Analysis(
        schema=ORDER_UTILITY,
        is_wanted=lambda config: bool(config.orders),
        check=functools.partial(_check, ORDER_UTILITY),
    ),
    Analysis(
        schema=ORDER_EFFECTS,
        sources=(ORDER_UTILITY, UTILITY, REPEATS, QUERIES),
        settings=RESAMPLED,
        is_wanted=lambda config: bool(config.orders),
        make=_make_effects,
        is_optional=True,
        show=show_orders,
        group=CREDIT,
    ),
)


EXTENSION = Extension(
    name="credit",
    lists=further_lists,
    score=score_credits,
    analyses=(*OF_CREDITS, *OF_ORDERS),
    list_values=(CREDITS, "credit"),
)

"""Responses to ranked lists -> sealed UTILITY, the end-to-end scores, and LIST_OUTPUTS."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import polars as pl

from erag_ray.config import JobConfig
from erag_ray.inference import Finished
from erag_ray.inputs import Inputs, end_to_end_settings, scores_of
from erag_ray.kinds import ANSWER
from erag_ray.labels.scoring import check_scores, score_notes, scoring_of
from erag_ray.logs import say
from erag_ray.planning import end_to_end_lists
from erag_ray.progress import stage_progress
from erag_ray.schemas import LIST_OUTPUTS, QUERIES, RESPONSES, UTILITY, conform
from erag_ray.scores import Scoring, score_named, score_outputs
from erag_ray.stages import Append, Stage, digests, ensure
from erag_ray.store import TableStore, frame_digests


def score_end_to_end(config: JobConfig, inputs: Inputs, finished: Finished) -> None:
    """Score the answers to all lists, sealed as UTILITY, and the answers themselves, as LIST_OUTPUTS.

    Args:
        config: the job.
        inputs: its inputs.
        finished: the stage that has asked for them.

    Raises:
        JobError: a score of the user's own raises for more outputs than ``max_error_fraction`` allows.
    """
    store, lists = TableStore(config.out), end_to_end_lists(config, inputs)
    judged = {} if finished.judgements is None else {"judgements": finished.judgements}
    outputs = finished.responses.select(*RESPONSES.key, "output")
    with stage_progress("end-to-end scores", show=config.progress):
        stage = Stage(
            name="end-to-end scores",
            tables=[UTILITY, LIST_OUTPUTS],
            settings=end_to_end_settings(config, inputs.datasets),
            sources=digests(store, [QUERIES]),
            inputs=frame_digests(
                {"lists": lists, "requests": finished.requests, "outputs": outputs, **judged}
            ),
            names=scores_of(inputs.queries),
            make=functools.partial(_make, config, inputs, finished, lists),
        )
        if not ensure(stage, store):
            say(f"{stage.name}: as sealed before")


def _make(
    config: JobConfig, inputs: Inputs, finished: Finished, lists: pl.DataFrame, append: Append
) -> Mapping[str, object]:
    scoring = scoring_of(finished.judgements)
    outputs = list_outputs(lists, finished.requests.filter(kind=ANSWER.name), finished.responses)
    append(UTILITY, utility_of(outputs, inputs.queries, scoring))
    check_scores(scoring, config)
    append(LIST_OUTPUTS, outputs)
    return {"notes": list(score_notes(scoring, "outputs of lists"))}


def utility(
    lists: pl.DataFrame,
    requests: pl.DataFrame,
    responses: pl.DataFrame,
    queries: pl.DataFrame,
    scoring: Scoring | None = None,
) -> pl.DataFrame:
    """UTILITY: the score of what the reader said with each list.

    Args:
        lists: columns run_id, query_id, depth, doc_ids.
        requests: REQUESTS for answers that hold each of these lists.
        responses: RESPONSES that hold each of these requests; one without an output is not judged.
        queries: QUERIES.
        scoring: as in `score_outputs`.

    Raises:
        ValueError: a list lacks its request or its response.
    """
    return utility_of(list_outputs(lists, requests, responses), queries, scoring)


def list_outputs(lists: pl.DataFrame, requests: pl.DataFrame, responses: pl.DataFrame) -> pl.DataFrame:
    """LIST_OUTPUTS: what the reader wrote with each list; arguments and errors as of `utility`."""
    asked = lists.join(requests, on=["query_id", "doc_ids"], how="left", nulls_equal=True)
    keys = RESPONSES.key
    read = responses.select(*keys, "output", found=pl.lit(True))
    outputs = asked.join(read, on=list(keys), how="left")
    if outputs["found"].null_count():
        example = (
            outputs.filter(pl.col("found").is_null()).select("run_id", "query_id", "depth").row(0, named=True)
        )
        raise ValueError(f"{outputs['found'].null_count()} lists lack a response, such as {example}")
    return outputs.select(LIST_OUTPUTS.columns.names)


def utility_of(outputs: pl.DataFrame, queries: pl.DataFrame, scoring: Scoring | None = None) -> pl.DataFrame:
    """UTILITY of LIST_OUTPUTS; other arguments as of `utility`."""
    gold_answers = outputs.join(queries.select("query_id", "answers", "score"), on="query_id", how="left")
    scored = pl.concat(
        _scored(part, scoring) for part in gold_answers.partition_by("score", maintain_order=True)
    )
    table = scored.select(UTILITY.columns.names)
    conform(table, UTILITY)
    return table


def _scored(part: pl.DataFrame, scoring: Scoring | None) -> pl.DataFrame:
    """Rows of one score, with its value in ``value``."""
    score, query_ids = score_named(part["score"][0]), part["query_id"].to_list()
    values = score_outputs(part["output"].to_list(), part["answers"].to_list(), score, query_ids, scoring)
    return part.with_columns(value=pl.Series(values, dtype=pl.Float64))

"""Stage that scores responses to ranked lists: sealed UTILITY (end-to-end scores), LIST_OUTPUTS and LIST_TOKENS."""

import functools
from collections.abc import Mapping

import polars as pl

from erag_ray.annotators import score_rows
from erag_ray.config.job import JobConfig
from erag_ray.inference.planning.given import given_notes
from erag_ray.inference.planning.plan import answers_of_lists, end_to_end_lists
from erag_ray.inference.stage import Finished
from erag_ray.inputs.evidence import Inputs, sample_notes
from erag_ray.inputs.settings import end_to_end_settings, scores_of
from erag_ray.inputs.stage import EVIDENCE_TABLES
from erag_ray.labels.judgements import check_scores, score_notes, scoring_of
from erag_ray.store.fingerprints import frame_digests
from erag_ray.store.schemas import LIST_OUTPUTS, LIST_TOKENS, REPEATS, RESPONSES, UTILITY
from erag_ray.store.stages.stage import Append, Stage, digests, ensure
from erag_ray.store.tables import TableStore
from erag_ray.support.logs import say
from erag_ray.support.progress import stage_progress

LIST = ["run_id", "query_id", "depth"]


def score_end_to_end(config: JobConfig, inputs: Inputs, finished: Finished) -> None:
    """Score the answers to all lists, sealed as UTILITY; seal the answers and the lengths of their prompts.

    Raises:
        JobError: a user's score raises for more outputs than ``max_error_fraction`` allows.
    """
    store, lists = TableStore(config.out), end_to_end_lists(config, inputs)
    judged = {} if finished.judgements is None else {"judgements": finished.judgements}
    given = {"given": finished.plan.given} if config.outputs else {}
    outputs = finished.responses.select(*RESPONSES.key, "output", "num_prompt_tokens")
    with stage_progress("end-to-end scores", show=config.progress):
        stage = Stage(
            name="end-to-end scores",
            tables=[UTILITY, LIST_OUTPUTS, REPEATS, LIST_TOKENS],
            settings=end_to_end_settings(config, inputs.datasets),
            sources=digests(store, EVIDENCE_TABLES) | finished.digests(config.out),
            inputs=frame_digests(
                {"lists": lists, "requests": finished.requests, "outputs": outputs, **judged, **given}
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
    given = finished.plan.given.filter(pl.col("run_id") != "")
    to_request = lists.join(given, on=LIST, how="anti", maintain_order="left")
    columns = [*LIST_OUTPUTS.columns.names, "num_prompt_tokens"]
    first, *again = (
        list_responses(to_request, finished.requests.filter(kind=kind.name), finished.responses)
        for kind in answers_of_lists(config)
    )
    both = pl.concat([first.select(columns), given.select(columns)])
    rows = lists.select(LIST).join(both, on=LIST, maintain_order="left")
    outputs = rows.select(LIST_OUTPUTS.columns.names)
    repeats = [outputs, *(one.select(outputs.columns) for one in again)]
    numbered = (one.with_columns(repeat=pl.lit(n, pl.Int32)) for n, one in enumerate(repeats, 1))
    scores = score_rows(pl.concat(numbered), inputs.queries, scoring)
    # equal scores have exactly their mean, and it does not depend on the order of the answers
    mean = pl.col("value").min() + (pl.col("value").sort() - pl.col("value").min()).mean()
    append(UTILITY, scores.group_by(UTILITY.key, maintain_order=True).agg(mean))
    if again:
        append(REPEATS, scores.select(REPEATS.columns.names))
    check_scores(scoring, config)
    append(LIST_OUTPUTS, outputs)
    append(LIST_TOKENS, rows.select(LIST_TOKENS.columns.names))
    notes = sample_notes(config, inputs.queries, inputs.runs)
    notes = [*given_notes(finished.plan.given), *notes, *score_notes(scoring, "outputs of lists")]
    return {"notes": notes, "stage": finished.plan.stage}


def list_responses(lists: pl.DataFrame, requests: pl.DataFrame, responses: pl.DataFrame) -> pl.DataFrame:
    """Return the response to each list: columns reader, run_id, query_id, depth, output, num_prompt_tokens and others.

    Lists have the columns run_id, query_id, depth, doc_ids (the first ``depth`` documents). ``requests`` are those for
    answers to these lists, without other kinds. Raise ValueError if a list lacks its request or its response.
    """
    joined = lists.join(requests, on=["query_id", "doc_ids"], how="left", nulls_equal=True)
    keys = RESPONSES.key
    texts = responses.select(*keys, "output", "num_prompt_tokens", has_response=pl.lit(True))
    outputs = joined.join(texts, on=list(keys), how="left")
    missing = outputs.filter(pl.col("has_response").is_null()).select(LIST)
    if missing.height:
        raise ValueError(f"{missing.height} lists lack a response, such as {missing.row(0, named=True)}")
    return outputs

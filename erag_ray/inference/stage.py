"""Running of a planned stage: its responses are in the store, and its tables sealed."""

import contextlib
import dataclasses
import importlib.util
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from erag_ray.config.job import JobConfig
from erag_ray.data.runs.references import NO_PASSAGES
from erag_ray.inference.in_process import run_in_process
from erag_ray.inference.output_tables import Expected, Values, describe_outputs, fold, outputs_of
from erag_ray.inference.planning.pending import Uses
from erag_ray.inference.planning.plan import ModelPlan, StagePlan
from erag_ray.inference.recheck import Sample, recheck, sample_of
from erag_ray.inference.work import Done, Work, cost_frame, cost_row, record_run, runs_before
from erag_ray.inputs.evidence import Inputs
from erag_ray.measures.scores import JUDGEMENTS
from erag_ray.models import model_class
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.answer_judge import ANSWER_JUDGE, judgement
from erag_ray.prompts.prompt import VERDICTS
from erag_ray.store.fingerprints import new_job_id
from erag_ray.store.responses import KEY_COLUMNS, ResponseStore
from erag_ray.store.schemas import COMMON_OUTPUTS, COSTS, OF_OUTPUTS, OUTPUTS, REQUESTS, RESPONSES
from erag_ray.store.stages.stage import digests
from erag_ray.store.tables import TableStore
from erag_ray.support.disks import enough_space
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.logs import warn
from erag_ray.support.progress import stage_progress
from erag_ray.support.registry import install_advice
from erag_ray.support.user_code import one_line

ROWS_PER_SHARD = 50_000
REQUEST_BYTES, RESPONSE_BYTES = 500, 200
"""Estimates, of what is compressed: a request in the shards, with its passages, and a response in the store."""
NOTES = {
    "thinking": "thinking stripped from",
    "control": "control tokens cut from",
    "cut": "cut by max_new_tokens",
    "empty": "empty",
    "estimated": "token counts missing, estimated in",
    "short": "far fewer prompt tokens counted than sent (does the server cut prompts, as Ollama beyond num_ctx?)",
}
"""Note of `Response.notes` -> its text in the summary."""
MIN_CONTEXT, MIN_FULL = 1000, 5
"""Tokens of a context, and questions whose prompts have as many, from which a server may have cut them."""
NUM_NAMED, LINE_CHARACTERS = 5, 2000
"""The errors that a message names, and the length of each."""


def run(work: Work, config: JobConfig, job: str) -> Done:
    """Run requests on Ray (`inference.pool.run`), which is imported where it is needed."""
    from erag_ray.inference import pool

    return pool.run(work, config, job)


def ray_session(address: str | None) -> contextlib.AbstractContextManager[None]:
    """Return the Ray of a job (`cluster.session.ray_session`), which is imported where it is needed."""
    try:
        from erag_ray.inference.cluster import session
    except ModuleNotFoundError as error:
        raise JobError(f"{error.name} is not installed{install_advice(error)}") from error
    return session.ray_session(address)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """A sealed stage: its REQUESTS and their RESPONSES."""

    plan: StagePlan
    requests: pl.DataFrame
    responses: pl.DataFrame
    judgements: pl.DataFrame | None = None
    """query_id, output, value?: the judge's scores of outputs, if there is a judge."""
    costs: pl.DataFrame = dataclasses.field(default_factory=COSTS.empty)
    """COSTS since the job was started: of this stage, and of what was run before it."""

    @property
    def has_all_values(self) -> bool:
        """Whether no response is an error, and no output is without a judgement."""
        judged = self.judgements is None or not self.judgements["value"].null_count()
        return judged and self.responses["error"].null_count() == self.responses.height

    def digests(self, out: str) -> dict[str, str]:
        """Return the digests of the stage's tables of outputs and judgements: what is scored from others is stale."""
        store = TableStore("/".join([out.rstrip("/"), self.plan.stage]))
        sealed = digests(store, filter(store.is_sealed, OF_OUTPUTS))
        return {f"{self.plan.stage}/{name}": digest for name, digest in sealed.items()}

    def values(self, inputs: Inputs) -> Values:
        """Return the values of each kind of request with one document or none, and the judge's scores of outputs."""
        values = dict(fold(self.plan.uses, self.requests, self.responses, inputs.queries))
        is_of_one = pl.col("run_id").is_in(["", NO_PASSAGES])
        doc_id = pl.col("doc_ids").list.first()
        given = self.plan.given.filter(is_of_one).select("query_id", "reader", doc_id=doc_id, value="output")
        if given.height:
            requested = values.get(ANSWER, given.clear())
            # a list of one document may have been asked end to end
            others = requested.join(given, on=["query_id", "doc_id"], how="anti", nulls_equal=True)
            values[ANSWER] = pl.concat([others, given], how="diagonal")
        return values if self.judgements is None else {**values, ANSWER_JUDGE: self.judgements}


def run_stage(config: JobConfig, plan: StagePlan, earlier: pl.DataFrame | None = None) -> Finished:
    """Run the pending requests, check that every request has a response, and seal the stage.

    ``earlier`` are COSTS since the job was started, which count under ``max_cost``.

    Raises:
        InputError: the job has no dry run.
        JobError: responses are missing, more of them are errors than ``max_error_fraction`` allows, or ``max_cost`` is
            spent.
    """
    if config.dry_run:
        raise InputError(["dry_run: this job has none, and would ask the reader; erag-ray compare has"])
    costs = COSTS.empty() if earlier is None else earlier
    tables = TableStore("/".join([config.out.rstrip("/"), plan.stage]))
    tables.folder.delete("manifest.json")
    charged = costs
    if config.max_cost_over == "attempts":
        charged = pl.concat([costs, runs_before(config, plan, costs)])
    job, todo = new_job_id(), [model_plan for model_plan in plan.plans if model_plan.new.height]
    done, samples = dict[str, Done](), dict[str, Sample]()
    with contextlib.ExitStack() as stack:
        if todo:
            stack.enter_context(readers_session(config))
            stack.enter_context(_enough_space(config, sum(model_plan.new.height for model_plan in todo)))
        record_run(config, plan, _costs(plan, done, job, samples))
        for model_plan in todo:
            start, limited = time.monotonic(), _with_unspent(config, charged, model_plan.id)
            may_differ = not model_plan.model.is_repeatable or are_on_gpus(config, model_plan)
            sample = sample_of(model_plan, config.recheck_fraction, config.seed) if may_differ else None
            run_work = run_in_process if reads_here(config) else run
            try:
                counts = run_work(write_work(limited, tables, model_plan, sample), limited, job)
            except JobError as error:
                counts = _counts_of_answered(model_plan, config, job, sample, error)
            done[model_plan.id] = dataclasses.replace(counts, seconds=time.monotonic() - start)
            if sample is not None:
                samples[model_plan.id] = sample
    return _seal_responses(config, tables, plan, done, job, costs, samples)


def are_on_gpus(config: JobConfig, plan: ModelPlan) -> bool:
    """Return whether a model's requests run on GPUs, whose sums depend on the batch."""
    if not plan.resources.num_gpus:
        return False
    if reads_here(config):
        return "torch" in sys.modules and bool(sys.modules["torch"].cuda.is_available())
    import ray

    from erag_ray.inference.cluster import nodes

    return ray.is_initialized() and bool(nodes.num_gpus_of(nodes.nodes_alive()))


def _counts_of_answered(
    plan: ModelPlan, config: JobConfig, job: str, sample: Sample | None, error: JobError
) -> Done:
    """Return the counts of a run that ended early, as by ``max_cost``; raise if more than its sample is missing."""
    store = ResponseStore(config.cache_dir, plan.id)
    if sample is None or plan.new.join(store.keys_by(job), on=KEY_COLUMNS, how="anti").height:
        raise error
    warn(f"the recheck ended early: {error}")
    return Done(**store.totals_by(job))


def _seal_responses(
    config: JobConfig,
    tables: TableStore,
    plan: StagePlan,
    done: Mapping[str, Done],
    job: str,
    costs: pl.DataFrame,
    samples: Mapping[str, Sample],
) -> Finished:
    """Look up the responses and those of the samples, and seal the stage; ``done``: model -> counts."""
    todo = [model_plan for model_plan in plan.plans if model_plan.id in done]
    with stage_progress("looking up responses", show=config.progress):
        collected = {model_plan.id: _collect(config, model_plan) for model_plan in plan.plans}
        # a stage may have no requests: some annotators need no model
        responses = pl.concat([RESPONSES.empty(), *(rows for rows, _ in collected.values())])
        devices = {model: counts for model, (_, counts) in collected.items()}
        _check_errors(responses, plan.requests, config)
        tables.write(plan.requests, REQUESTS)
    spent = _costs(plan, done, job, samples)
    rechecks = [
        recheck(sample, ResponseStore(config.cache_dir, name), responses.filter(model=name), plan)
        for name, sample in samples.items()
    ]
    tables.write(record_run(config, plan, spent), COSTS)
    if plan.answered is not None:
        with stage_progress("outputs", show=config.progress):
            requests, queries = plan.requests.filter(kind=ANSWER.name), plan.queries
            outputs = outputs_of(plan.answered, requests, responses, queries, plan.given)
            counts, common = describe_outputs(outputs, queries, expected_of(plan.uses, plan.verdicts))
            tables.write(counts, OUTPUTS)
            tables.write(common, COMMON_OUTPUTS)
    noted_in = sum((Counter(model_counts.notes) for model_counts in done.values()), Counter[str]())
    notes = ", ".join(f"{NOTES.get(name, name)} {count:,}" for name, count in sorted(noted_in.items()))
    noted = [f"Of the new outputs: {notes}."] if notes else []
    full = list(full_prompts(responses, plan))
    warn(*full)
    remarks = [*noted, *(f"Warning: {one}." for one in full), *rechecks]
    _seal(config, tables, plan, responses, devices, remarks)
    for model_plan in todo:
        # the shards have all texts, which the sealed stage does not need
        tables.folder.delete_folder("pending", model_plan.id)
    return Finished(plan=plan, requests=plan.requests, responses=responses, costs=pl.concat([costs, spent]))


def expected_of(uses: Uses, verdicts: Mapping[str, Sequence[str]]) -> Expected:
    """Return the expected properties of a stage's outputs, for `describe_outputs`."""
    answers = [use for use in uses.values() if use.kind is ANSWER]
    return Expected(
        max_new_tokens={
            use.reader: use.form.max_new_tokens if model_class(use.case.reader.kind).counts_tokens else None
            for use in answers
        },
        # without verdicts: those in the examples are right answers to other claims
        example_answers={
            use.reader: [example.answer for example in use.form.prompt.examples]
            for use in answers
            if use.case.family not in VERDICTS
        },
        verdicts=verdicts,
    )


def _with_unspent(config: JobConfig, costs: pl.DataFrame, model: str) -> JobConfig:
    """Return the config with what is left of ``max_cost`` for a model."""
    if config.max_cost is None:
        return config
    left = config.max_cost - math.fsum(costs.filter(model=model)["price"].drop_nulls())
    if left <= 0:
        text = f"max_cost: all of {config.max_cost:.4f} is spent before these requests to {model}"
        again = "run the job again to spend up to max_cost again"
        advice = again if config.max_cost_over == "start" else "set a higher max_cost to go on"
        raise JobError(f"{text}; responses are kept; {advice}")
    return dataclasses.replace(config, max_cost=left)


def reads_here(config: JobConfig) -> bool:
    """Return whether this process runs the requests: num_readers is 0, or Ray is not installed and nothing needs it."""
    has_limit = isinstance(config.max_batch_seconds, float)
    asks_for_ray = (config.num_readers, config.ray_address, config.wait_for_gpus, has_limit)
    return config.num_readers == 0 or (not any(asks_for_ray) and importlib.util.find_spec("ray") is None)


@contextlib.contextmanager
def readers_session(config: JobConfig) -> Iterator[None]:
    """Start or join the Ray on which a job's readers run; none where this process reads."""
    with contextlib.ExitStack() as stack:
        if not reads_here(config):
            with stage_progress("starting Ray", show=config.progress):
                stack.enter_context(ray_session(config.ray_address))
        yield


def _enough_space(config: JobConfig, num_requests: int) -> contextlib.AbstractContextManager[None]:
    """Return a check of the disks, for requests without a response (`support.disks.enough_space`)."""
    out, cache = ("out", config.out), ("cache_dir", config.cache_dir)
    needs = {out: num_requests * REQUEST_BYTES, cache: num_requests * RESPONSE_BYTES}
    if not reads_here(config):
        from erag_ray.inference.cluster.session import session_folder

        needs |= {("RAY_TMPDIR", folder): 0 for folder in session_folder()}
    return enough_space(needs)


def write_work(config: JobConfig, tables: TableStore, plan: ModelPlan, sample: Sample | None = None) -> Work:
    """Write the pending requests of a model as Parquet shards, and return what readers need to run them.

    ``sample``: of them, to be asked for again after all others.
    """
    path = ("pending", plan.id)
    tables.folder.delete_folder(*path)
    with stage_progress("writing requests", show=config.progress):
        for number, start in enumerate(range(0, plan.new.height, ROWS_PER_SHARD)):
            shard = plan.make_requests(plan.new.slice(start, ROWS_PER_SHARD))
            tables.folder.write_parquet(shard, *path, f"part-{number:05}.parquet", row_group_size=5000)
        if sample:
            tables.folder.write_parquet(sample.table, *path, "part-again.parquet", row_group_size=5000)
    return Work(
        requests="/".join([tables.folder.root.rstrip("/"), *path]),
        num_requests=plan.new.height + (sample.keys.height if sample else 0),
        config=plan.model.config,
        model=plan.id,
        forms=sample.forms if sample else plan.forms,
        resources=plan.resources,
        may_all_fail=plan.new.height <= config.max_error_fraction * int(plan.counts["distinct"].sum()),
    )


def _collect(config: JobConfig, plan: ModelPlan) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """Return a model's responses, and device -> number of responses."""
    store = ResponseStore(config.cache_dir, plan.id)
    responses = store.lookup(plan.requests)
    missing = plan.requests.join(responses, on=KEY_COLUMNS, how="anti")
    if missing.height:
        example = missing.select("query_id", "doc_ids").row(0, named=True)
        torn = f" ({len(store.set_aside)} damaged files were set aside)" if store.set_aside else ""
        text = f"{plan.id}: {missing.height} requests have no response, such as {example}{torn}. Start the job again"
        raise JobError(text)
    return responses, dict(store.devices)


def _check_errors(responses: pl.DataFrame, requests: pl.DataFrame, config: JobConfig) -> None:
    errors, keys = responses.filter(pl.col("error").is_not_null()), ["model", *KEY_COLUMNS]
    first = errors.join(requests.unique(keys, keep="first", maintain_order=True), on=keys).head(NUM_NAMED)
    named = [
        f"query {row['query_id']}, documents {row['doc_ids']}: {row['error_kind']}: {row['error']}"
        for row in first.iter_rows(named=True)
    ]
    check_share("requests", errors.height, responses.height, named, config)


def full_prompts(responses: pl.DataFrame, plan: StagePlan) -> Iterator[str]:
    """Yield a warning for each model behind a server that may cut prompts: its longest ones have as many tokens.

    Prompts to at least `MIN_FULL` questions must have the number, and it be `MIN_CONTEXT` or more.
    """
    count = pl.col("num_prompt_tokens")
    for served in (one for one in plan.plans if one.model.has_timeouts):
        longest = responses.filter(count >= MIN_CONTEXT, model=served.id).filter(count == count.max())
        num_questions = longest["question_key"].n_unique()
        if num_questions >= MIN_FULL:
            tokens = f"{longest['num_prompt_tokens'][0]:,} tokens"
            text = f"the longest prompts to {num_questions:,} questions all have {tokens}"
            yield f"{text}: the server of {served.model.config.model} may cut them, as Ollama does beyond num_ctx"


def check_share(noun: str, num_errors: int, total: int, lines: Iterable[str], config: JobConfig) -> None:
    """Raise JobError if errors (no output to a request, no score of an output) exceed ``max_error_fraction``."""
    most = config.max_error_fraction
    if num_errors > most * total:
        head = f"{num_errors} of {total} {noun} are errors, more than max_error_fraction {most}."
        head = f"{head} The responses so far are kept"
        raise JobError("\n  ".join([head, *(one_line(line, LINE_CHARACTERS) for line in lines)]))


def _costs(
    plan: StagePlan, done: Mapping[str, Done], job: str, samples: Mapping[str, Sample]
) -> pl.DataFrame:
    """Return the rows of COSTS of a run, without counts for models without new requests."""
    rows = []
    for model_plan in plan.plans:
        num_requests = int(model_plan.counts["distinct"].sum())
        if model_plan.id in samples:
            num_requests += samples[model_plan.id].keys.height
        key = {"stage": plan.stage, "job": job, "model": model_plan.id}
        rows.append(cost_row(key, model_plan.model.config, num_requests, done.get(model_plan.id, Done())))
    return cost_frame(rows)


def _seal(
    config: JobConfig,
    tables: TableStore,
    plan: StagePlan,
    responses: pl.DataFrame,
    devices: Mapping[str, Mapping[str, int]],
    remarks: Sequence[str],
) -> None:
    # null without responses
    tokens = responses.select(pl.col("num_prompt_tokens").mean()).item() or 0
    cut = responses.select((pl.col("num_truncated_passage_tokens") > 0).mean()).item() or 0
    cut_question = responses.select((pl.col("num_truncated_question_tokens") > 0).mean()).item() or 0
    summary = (
        f"Over all responses used: {tokens:.0f} prompt tokens each, passages cut in "
        f"{cut:.1%}, question cut in {cut_question:.1%}; {responses['error'].count()} errors."
    )
    of_models = [f"{note}." for model_plan in plan.plans for note in model_plan.model.notes()]
    mixed = [
        f"Warning: responses of {model} are from different devices or versions: "
        + "; ".join(f"{count:,} by {name}" for name, count in sorted(of_model.items()))
        + "."
        for model, of_model in devices.items()
        if len(of_model) > 1
    ]
    sentences = [summary, *remarks, *of_models, *mixed]
    if any(use.kind is ANSWER_JUDGE for use in plan.uses.values()):
        judged = Counter(judgement(text) for text in responses["output"].drop_nulls())
        verdicts = ", ".join(f"{name} {judged[name]:,}" for name in JUDGEMENTS)
        unclear = f"no judgement in {judged[None]:,}, whose scores are null"
        sentences.append(f"Distinct outputs by the judge: {verdicts}; {unclear}.")
    content = {
        "stage": plan.stage,
        "counts": plan.counts,
        "summary": " ".join(sentences),
        "num_requests": plan.requests.height,
        "num_responses": responses.height,
        "devices": devices,
        "models": {model_plan.id: model_plan.model.facts() for model_plan in plan.plans},
        "store": config.cache_dir,
        # of the reader, by dataset, and how they are filled, for the page
        "prompts": {
            dataset: dataclasses.asdict(use.form.prompt)
            | {"is_for_each": not use.sees_order, "max_tokens": use.form.max_prompt_tokens}
            for (_, dataset), use in plan.uses.items()
            if use.kind is ANSWER
        },
    }
    tables.write_manifest(content)

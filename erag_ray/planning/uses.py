"""Which model is asked what about a dataset, and what is wrong with that before any weights are loaded."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from erag_ray.annotators import asks_of
from erag_ray.config import JobConfig, JudgeConfig, ReaderConfig
from erag_ray.datasets import Dataset
from erag_ray.errors import InputError
from erag_ray.kinds import ANSWER, ANSWER_JUDGE, EARLY_STOPPED, VERDICT, Case, Kind
from erag_ray.models import (
    Model,
    able,
    check_form,
    identity_of,
    make_model,
    model_class,
    model_id,
    rendered,
)
from erag_ray.planning.pending import Use
from erag_ray.requests import VERDICTS, Form, Passage
from erag_ray.scores import JUDGED, score_named
from erag_ray.store import fingerprint
from erag_ray.user_code import checking

_MODELS: dict[str, tuple[Model, str]] = {}
NUM_KEPT = 16
FORM_KEYS = (
    "max_prompt_tokens",
    "max_new_tokens",
    "prompt",
    "family",
    "titles",
    "num_examples",
    "stop_at_newline",
)
_DEFAULT_READER: Mapping[str, Any] = {
    field.name: field.default for field in dataclasses.fields(ReaderConfig) if field.name in FORM_KEYS
}


def _model(config: ReaderConfig) -> tuple[Model, str]:
    """A model without its weights, and its id.

    Kept, since a tokenizer can take seconds to load and is needed by the check and by the plan.
    """
    key = fingerprint(config)
    if key not in _MODELS:
        while len(_MODELS) >= NUM_KEPT:
            del _MODELS[next(iter(_MODELS))]
        model = make_model(config)
        _MODELS[key] = model, model_id(model, identity_of(model))
    return _MODELS[key]


def use_of(kind: Kind, config: JobConfig, dataset: Dataset) -> tuple[Use, Model]:
    """How a kind of question is asked about a dataset, and the model that is asked.

    Raises:
        InputError: the model cannot be found or read, or cannot answer this.
    """
    if kind is ANSWER_JUDGE and config.judge == JudgeConfig():
        raise InputError(["score: judged needs a judge; give judge.kind and judge.model, or another score"])
    asked = config.reader if kind.asks == "reader" else config.judge.reader()
    case = Case(
        dataset=dataset,
        reader=config.reader,
        judge=config.judge,
        default_prompt=model_class(asked.kind).default_prompt,
    )
    try:
        with checking(f"kind {kind.name}: build", kind.build):
            form = kind.build(case)
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError([f"reader.prompt: {error}"]) from error
    missing = form.needs - model_class(asked.kind).supports
    if missing:
        what = f"the kind {kind.name} needs {' and '.join(sorted(missing))}"
        text = f"{kind.asks}.kind: {what}, and {asked.kind} gives none; {able(form)} can"
        raise InputError([text])
    with _named_after(kind):
        model, name = _model(_own(asked, form))
        check_form(model, form)
        _check_answers(kind, case, model)
    reader = name if kind.asks == "judge" else reader_id(config, dataset)
    use = Use(kind=kind, case=case, form=form, model=name, reader=reader, sees_order=model.sees_order)
    return use, model


@contextlib.contextmanager
def _named_after(kind: Kind) -> Iterator[None]:
    """While open, problems name the judge's keys where the judge is asked."""
    try:
        yield
    except InputError as error:
        raise InputError(
            [problem.replace("reader.", f"{kind.asks}.") for problem in error.problems]
        ) from error


def _own(config: ReaderConfig, form: Form) -> ReaderConfig:
    """The config of the model alone, without what stands in forms; likelihoods in integers would be of another one."""
    is_in_floats = form.method == "loglikelihood" and config.dtype == "int8"
    return dataclasses.replace(
        config,
        dtype="float32" if is_in_floats else config.dtype,
        **{key: _DEFAULT_READER[key] for key in FORM_KEYS},
    )


def _check_answers(kind: Kind, case: Case, model: Model) -> None:
    request = kind.request(case, "Who?", (Passage("A title", "A text."),), ("An answer",))
    if not request.answers:
        return
    for one in rendered(model, [request]):
        problem = kind.check(request.answers, one.answer_ids) if one.answer_ids else ""
        if problem:
            raise InputError([problem])


def reader_id(config: JobConfig, dataset: Dataset) -> str:
    """The reader's name in tables: its model's kind and 16 digits of what its answers to a dataset depend on."""
    asked = config.reader
    case = Case(
        dataset=dataset,
        reader=asked,
        judge=config.judge,
        default_prompt=model_class(asked.kind).default_prompt,
    )
    form = ANSWER.build(case)
    _, model = _model(_own(asked, form))
    return f"{asked.kind.rpartition(':')[2]}-{fingerprint([model, form.fingerprint])[:16]}"


def label_kind(config: JobConfig, dataset: Dataset) -> Kind:
    """What is asked for eRAG's labels: the answer, or what gives its score alone where the job wants no more."""
    family = config.reader.family or dataset.family
    if config.score_only == "classification" and family in VERDICTS:
        return VERDICT
    if config.score_only and score_named(dataset.score).may_match is not None:
        return EARLY_STOPPED
    return ANSWER


def check_reader(config: JobConfig, datasets: Mapping[str, Dataset]) -> list[str]:
    """What is wrong with the models, for every dataset and all that they are asked; no weights are loaded."""
    try:
        model_class(config.reader.kind)
    except InputError as error:
        return list(error.problems)
    problems: list[str] = []
    for dataset in datasets.values() or (Dataset(),):
        kinds = [ask.kind for ask in asks_of(config.annotators)] + score_kinds(dataset)
        for kind in dict.fromkeys([ANSWER, *_label_kinds(config, dataset), *kinds]):
            try:
                use_of(kind, config, dataset)
            except InputError as error:
                problems += error.problems
    return list(dict.fromkeys(problems))


def score_kinds(dataset: Dataset) -> list[Kind]:
    """What is asked of models about outputs before they have a score."""
    return [ANSWER_JUDGE] if dataset.score in JUDGED else []


def _label_kinds(config: JobConfig, dataset: Dataset) -> list[Kind]:
    try:
        return [label_kind(config, dataset)]
    except ValueError:
        # a score that there is not: the checks of the evaluation say so
        return []

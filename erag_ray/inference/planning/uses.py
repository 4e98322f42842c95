"""Select model and form of each kind of request for a dataset, and check them before any weights are loaded."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from erag_ray.annotators import request_specs
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import FORM_KEYS, JudgeConfig, ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.inference.planning.pending import Use
from erag_ray.measures.scores import JUDGED
from erag_ray.models import Model, kinds_supporting, make_model, model_class, model_id, render_isolated
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.answer_judge import ANSWER_JUDGE
from erag_ray.prompts.kinds.base import Case, Kind, Role
from erag_ray.prompts.request import Form, Passage
from erag_ray.store.fingerprints import fingerprint
from erag_ray.store.stages.lock import shared
from erag_ray.support.errors import InputError
from erag_ray.support.user_code import checking

_KEYS = "|".join(field.name for field in dataclasses.fields(ReaderConfig))
_READER_KEY = re.compile(rf"(?<![\w./~\\-])reader\.(?=prompt\.\w|(?:{_KEYS})(?![\w/\\-]|\.\w))")
"""The beginning of a key of the reader in a message, and not of a file that is called so."""


def _model(config: ReaderConfig) -> tuple[Model, str]:
    """Return a model without its weights, and its id.

    A job makes it once, since a tokenizer can take seconds to load and is used by the checks and by the plan. The next
    job looks at the files again: a model may have been trained again in the same folder.
    """

    def make() -> tuple[Model, str]:
        model = make_model(config)
        return model, model_id(model)

    return shared(fingerprint(config), make)


def use_of(kind: Kind, config: JobConfig, dataset: Dataset) -> tuple[Use, Model]:
    """Return the use of a kind of request for a dataset, and its model.

    Raises:
        InputError: the model cannot be found or loaded, or does not support the kind.
    """
    if kind is ANSWER_JUDGE and config.judge == JudgeConfig():
        raise InputError(["score: judged needs a judge; set judge.kind and judge.model, or another score"])
    model_config = _config_of(kind.role, config)
    with _problems_named_after(kind):
        backend = model_class(model_config.kind)
    case = Case(
        dataset=dataset,
        reader=config.reader if kind.role == "judge" else model_config,
        judge=config.judge,
        default_prompt=backend.default_prompt,
        scores_texts=backend.scores_texts,
    )
    try:
        with checking(f"kind {kind.name}: build", kind.build):
            form = kind.build(case)
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError([f"reader.prompt: {error}"]) from error
    if form.method not in backend.supports:
        others = kinds_supporting(lambda scores: kind.build(dataclasses.replace(case, scores_texts=scores)))
        text = f"the kind {kind.name} needs {form.method}, which {model_config.kind} does not support; {others} can"
        raise InputError([f"{kind.role}.kind: {text}"])
    with _problems_named_after(kind):
        model, name = _model(_model_config(model_config, form))
        with checking(f"reader.kind: {model.config.kind}: check", type(model)):
            model.check(form)
        request = kind.request(case, "Who?", (Passage("A title", "A text."),), ("An answer",))
        for prompt in render_isolated(model, [request]) if request.answers else []:
            if problem := kind.check(prompt.answer_ids):
                raise InputError([problem])
    reader = reader_id(config, dataset) if kind.role == "reader" else name
    use = Use(kind=kind, case=case, form=form, model=name, reader=reader, sees_order=model.sees_order)
    return use, model


def _config_of(role: Role, config: JobConfig) -> ReaderConfig:
    if role == "judge":
        return config.judge.reader()
    if role == "reader":
        return config.reader
    if config.auxiliary_reader is None:
        text = "erag_auxiliary and the like need it; set auxiliary_reader.kind and .model"
        raise InputError([f"auxiliary_reader: {text}"])
    return config.auxiliary_reader


@contextlib.contextmanager
def _problems_named_after(kind: Kind) -> Iterator[None]:
    """In this context, problems of the judge name the config keys of the judge instead of the reader's."""
    try:
        yield
    except InputError as error:
        raise InputError([_READER_KEY.sub(f"{kind.role}.", problem) for problem in error.problems]) from error


def _model_config(config: ReaderConfig, form: Form) -> ReaderConfig:
    """Return the config of the model without form keys; int8 becomes float32 for log-likelihoods."""
    needs_floats, unset = form.method == "loglikelihood" and config.dtype == "int8", ReaderConfig()
    defaults: dict[str, Any] = {key: getattr(unset, key) for key in FORM_KEYS}
    return dataclasses.replace(config, dtype="float32" if needs_floats else config.dtype, **defaults)


def reader_id(config: JobConfig, dataset: Dataset) -> str:
    """Return the reader's name in tables: model kind and 16 digits of the fingerprint of model and form."""
    model_config = config.reader
    default = model_class(model_config.kind).default_prompt
    case = Case(dataset=dataset, reader=model_config, judge=config.judge, default_prompt=default)
    form = ANSWER.build(case)
    _, model = _model(_model_config(model_config, form))
    return f"{model_config.kind.rpartition(':')[2]}-{fingerprint([model, form.fingerprint])[:16]}"


def check_reader(config: JobConfig, datasets: Mapping[str, Dataset]) -> list[str]:
    """Return the problems of the models for all datasets and kinds of request; no weights are loaded."""
    problems, kinds = list[str](), [spec.kind for spec in request_specs(config.annotators)]
    if config.asks_reader:
        try:
            model_class(config.reader.kind)
        except InputError as error:
            return list(error.problems)
        kinds = [ANSWER, *kinds]
    else:
        # all outputs are given, and only the judge is asked
        problems = [
            f"annotators: {name} asks the reader more than outputs can say; configure it"
            for name in config.annotators
            if any(spec.kind.role == "reader" and spec.kind is not ANSWER for spec in request_specs([name]))
        ]
        kinds = [kind for kind in kinds if kind.role != "reader"]
    for dataset in datasets.values() or (Dataset(),):
        for kind in dict.fromkeys([*kinds, *score_kinds(dataset)]):
            try:
                use_of(kind, config, dataset)
            except InputError as error:
                problems += error.problems
    return list(dict.fromkeys(problems))


def score_kinds(dataset: Dataset) -> list[Kind]:
    return [ANSWER_JUDGE] if dataset.score in JUDGED else []

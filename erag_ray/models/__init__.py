"""Models: requests in, responses out. A backend serves all kinds of requests and all prompts.

`MODELS` lists those of this package; a model outside it is a subclass of `Model`, named ``package.module:Class``.
`make_model` constructs a model without its weights, which is enough to render requests and to compute its fingerprint;
`load_model` loads the weights.
"""

from collections.abc import Callable
from typing import Any

from erag_ray.config.reader import FORM_KEYS, ReaderConfig, output_settings
from erag_ray.models.base import Model, Rendered, Resources
from erag_ray.models.budget import Budget, TokenCounts
from erag_ray.models.function import Reader, register_function
from erag_ray.models.isolation import Isolation, render_isolated
from erag_ray.models.outputs import answer_in
from erag_ray.prompts.request import Failure, Form, Passage, Prompt, Request, Response
from erag_ray.store.fingerprints import fingerprint
from erag_ray.store.responses import FACTS, ResponseStore
from erag_ray.support.errors import InputError
from erag_ray.support.registry import find
from erag_ray.support.user_code import checking, running

__all__ = [
    "MODELS", "Budget", "Failure", "Form", "Isolation", "LocalModel", "Model", "Passage", "Prompt", "Reader",
    "Rendered", "Request", "Resources", "Response", "TokenCounts", "answer_in", "check_facts",
    "fingerprint_fields_of", "kinds_supporting", "load_model", "make_model", "model_class", "model_id",
    "register_function", "render_isolated", "resources_of",
]  # fmt: skip


def model_class(kind: str) -> type[Model]:
    """Return the class that ``reader.kind`` names; raise InputError if there is none, or it is not a `Model`."""
    try:
        entry: object = find("reader", MODELS[kind], {}) if kind in MODELS else find("reader", kind, MODELS)
    except ValueError as error:
        raise InputError([f"reader.kind: {error}"]) from error
    if not (isinstance(entry, type) and issubclass(entry, Model)):
        what = "not a subclass" if isinstance(entry, type) else f"a {type(entry).__name__}, not a subclass"
        raise InputError([f"reader.kind: {kind} is {what} of erag_ray.models.Model"])
    return entry


def kinds_supporting(form_of: Callable[[bool], Form]) -> str:
    """Return the kinds of models in this package that support a form, which depends on `Model.scores_texts`."""

    def is_supporting(name: str) -> bool:
        kind = model_class(name)
        form = form_of(kind.scores_texts)
        needs_texts = form.method == "loglikelihood" and not form.next_token
        return form.method in kind.supports and (kind.scores_texts or not needs_texts)

    return ", ".join(filter(is_supporting, MODELS))


def make_model(config: ReaderConfig) -> Model:
    """Construct the model that a config describes, without its weights.

    Raises:
        InputError: there is no such kind, its files cannot be found or read, or user code raises.
    """
    kind = model_class(config.kind)
    if config.options and config.kind in MODELS:
        raise InputError([f"reader.options: {config.kind} takes none, got {', '.join(config.options)}"])
    with checking(f"reader.kind: {config.kind}", kind):
        model = kind(config)
        if getattr(model, "config", None) is not config:
            raise TypeError("its __init__ does not call super().__init__(config)")
    return model


def fingerprint_fields_of(model: Model) -> dict[str, object]:
    """Return `Model.fingerprint_fields`; of a user's class also the keys that it may read, where they are set.

    Raises:
        InputError: user code raises, or its fields cannot be hashed.
    """
    config, unset, elsewhere = model.config, ReaderConfig(), ("kind", "options", *FORM_KEYS)
    settings = {} if config.kind in MODELS else output_settings(config)
    settings = {key: value for key, value in settings.items() if key not in elsewhere}
    with checking(f"reader.kind: {config.kind}: fingerprint_fields", type(model)):
        fields = {key: value for key, value in settings.items() if value != getattr(unset, key)}
        fields |= model.fingerprint_fields()
        fingerprint(fields)
        return fields


def resources_of(model: Model) -> Resources:
    """Return `Model.resources`; raise InputError if user code raises, or returns something else."""
    with checking(f"reader.kind: {model.config.kind}: resources", type(model)):
        resources = model.resources()
        if not isinstance(resources, Resources):
            raise TypeError(f"returned {resources!r}, not erag_ray.models.Resources")
        return resources


def check_facts(model: Model, store: ResponseStore) -> None:
    """Call `Model.check_facts` with the facts that the store of its responses recorded first.

    Raises:
        InputError: the model has changed since then, or user code raises.
    """
    with checking(f"reader.kind: {model.config.kind}: facts", type(model)):
        if facts := model.facts():
            try:
                model.check_facts(store.first_facts(facts))
            except (KeyError, TypeError, AttributeError):
                # damaged, or of something else
                store.folder.set_aside(FACTS)
                model.check_facts(store.first_facts(facts))


def load_model(model: Model) -> None:
    """Call `Model.load`; raise JobError if user code raises."""
    with running(f"reader {model.config.kind}: load", type(model)):
        model.load()


def model_id(model: Model) -> str:
    """Return the model's name in paths: its kind and 16 digits of its fingerprint."""
    return f"{model.config.kind.rpartition(':')[2]}-{fingerprint(fingerprint_fields_of(model))[:16]}"


MODELS = {
    "fid": "erag_ray.models.t5.model:T5Model",
    "ipa": "erag_ray.models.t5.model:T5Model",
    "causal": "erag_ray.models.causal.model:CausalModel",
    "vllm": "erag_ray.models.vllm.model:VllmModel",
    "served": "erag_ray.models.served.model:ServedModel",
    "echo": "erag_ray.models.echo:EchoModel",
    "function": "erag_ray.models.function:FunctionModel",
}
"""Kind -> its class, imported where a job names the kind: only those of this process need torch."""


def __getattr__(name: str) -> Any:
    if name != "LocalModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # at its first use, since it needs torch
    from erag_ray.models.local.model import LocalModel

    return LocalModel

"""Models: requests in, responses out. A backend is written once, for all kinds of requests and all prompts.

`MODELS` names those of this package; others are named ``package.module:Class`` and stand on `Model`. `make_model` makes
one without its weights, enough to render requests and to know its fingerprint; `load_model` brings the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError
from erag_ray.models.base import Model, Rendered, Resources
from erag_ray.models.causal.model import CausalModel
from erag_ray.models.echo import EchoModel
from erag_ray.models.isolation import Isolation, checked, rendered
from erag_ray.models.local.devices import backend, gpu_error
from erag_ray.models.local.memory import keep_freed_memory
from erag_ray.models.local.model import LocalModel, PromptTokens
from erag_ray.models.local.weights import quiet
from erag_ray.models.served.model import ServedModel
from erag_ray.models.t5.model import T5Model
from erag_ray.models.vllm.model import VllmModel
from erag_ray.registry import find
from erag_ray.requests import Failure, Form, Passage, Prompt, Request, Response
from erag_ray.store import ResponseStore, fingerprint
from erag_ray.user_code import checking, running

__all__ = [
    "MODELS",
    "CausalModel",
    "Failure",
    "Form",
    "Isolation",
    "LocalModel",
    "Model",
    "Passage",
    "Prompt",
    "PromptTokens",
    "Rendered",
    "Request",
    "Resources",
    "Response",
    "ServedModel",
    "T5Model",
    "VllmModel",
    "able",
    "backend",
    "check_facts",
    "check_form",
    "checked",
    "gpu_error",
    "identity_of",
    "keep_freed_memory",
    "load_model",
    "make_model",
    "model_class",
    "model_id",
    "rendered",
    "resources_of",
]


def model_class(kind: str) -> type[Model]:
    """The class behind ``reader.kind``.

    Raises:
        InputError: there is none, or it is no model.
    """
    try:
        found: object = find("reader", kind, MODELS)
    except ValueError as error:
        raise InputError([f"reader.kind: {error}"]) from error
    if not (isinstance(found, type) and issubclass(found, Model)):
        what = "not a subclass" if isinstance(found, type) else f"a {type(found).__name__}, not a subclass"
        raise InputError([f"reader.kind: {kind} is {what} of erag_ray.models.Model"])
    return found


def able(form: Form) -> str:
    """The kinds of models in this package that can answer requests of a form."""
    is_of_text = form.method == "loglikelihood" and not form.next_token
    names = [name for name, kind in MODELS.items() if kind.supports >= form.needs]
    return ", ".join(name for name in names if MODELS[name].scores_texts or not is_of_text)


def make_model(config: ReaderConfig) -> Model:
    """The model that a config describes, without its weights.

    Raises:
        InputError: there is no such kind, its model cannot be found or read, or it is user code and raises.
    """
    quiet()
    kind = model_class(config.kind)
    if config.options and config.kind in MODELS:
        raise InputError([f"reader.options: {config.kind} takes none, got {', '.join(config.options)}"])
    with checking(f"reader.kind: {config.kind}", kind):
        model = kind(config)
        if getattr(model, "config", None) is not config:
            raise TypeError("its __init__ does not call super().__init__(config)")
    return model


def identity_of(model: Model) -> dict[str, object]:
    """`Model.identity`.

    Raises:
        InputError: it is user code, and raises.
    """
    with checking(f"reader.kind: {model.config.kind}: identity", type(model)):
        found = model.identity()
        fingerprint(found)
        return found


def resources_of(model: Model) -> Resources:
    """`Model.resources`.

    Raises:
        InputError: it is user code, and raises.
    """
    with checking(f"reader.kind: {model.config.kind}: resources", type(model)):
        found = model.resources()
        if not isinstance(found, Resources):
            raise TypeError(f"gave {found!r}, not erag_ray.models.Resources")
        return found


def check_form(model: Model, form: Form) -> None:
    """`Model.check`.

    Raises:
        InputError: the model can answer none of this form, or it is user code, and raises.
    """
    with checking(f"reader.kind: {model.config.kind}: check", type(model)):
        model.check(form)


def check_facts(model: Model, store: ResponseStore) -> None:
    """`Model.check_facts`, with what stands in the store of its responses; there the first facts stay.

    Raises:
        InputError: the model is no longer what it was, or it is user code, and raises.
    """
    with checking(f"reader.kind: {model.config.kind}: facts", type(model)):
        if facts := model.facts():
            model.check_facts(store.first_facts(facts))


def load_model(model: Model) -> None:
    """`Model.load`.

    Raises:
        JobError: it is user code, and raises.
    """
    with running(f"reader {model.config.kind}: load", type(model)):
        model.load()


def model_id(model: Model, identity: Mapping[str, object] | None = None) -> str:
    """The model's name in folders: its kind and 16 digits of its fingerprint.

    Args:
        model: the model.
        identity: its `Model.identity`, where that is at hand: it takes a second for each GB of weights.
    """
    kind = model.config.kind.rpartition(":")[2]
    return f"{kind}-{fingerprint(identity or identity_of(model))[:16]}"


MODELS: dict[str, type[Model]] = {
    "fid": T5Model,
    "ipa": T5Model,
    "causal": CausalModel,
    "vllm": VllmModel,
    "served": ServedModel,
    "echo": EchoModel,
}

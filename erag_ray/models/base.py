"""The base class of all models: requests in, responses out, in any order.

A backend is a subclass of `Model` with `run`, and `load` if it has weights. Those of this package that run in this
process derive from `local.model.LocalModel`. Code outside the package is named ``package.module:Class``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.budget import Budget
from erag_ray.prompts.prompt import as_messages, as_text
from erag_ray.prompts.request import Form, Method, Request, Response
from erag_ray.support.errors import InputError

DEFAULT_BATCH = 32
TOKEN_CHARACTERS = 4
"""Characters per token in most alphabetic languages, for models whose tokens are unknown."""


class Resources(NamedTuple):
    """The resources of one actor with a model."""

    num_gpus: float = 1.0
    """In a cluster with GPUs; a fraction if several actors share a GPU; 0 if it needs none."""
    num_cpus: int | None = None
    """None for an equal share of the CPUs."""
    in_flight: int = 1
    """The number of requests that it processes concurrently."""
    weight_bytes: int = 0
    """Size of the weights on disk, for models that may share a GPU: a small model is faster than one process can
    tokenize for it. Else 0."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A request as input for a model."""

    text: str = ""
    """The prompt; "" for a chat."""
    messages: tuple[Mapping[str, str], ...] = ()
    """Of a chat, each with ``role`` and ``content``."""
    num_tokens: int | None = None
    """Of the prompt; None if the model does not count them."""
    num_truncated_question_tokens: int = 0
    """Cut from the question to make it fit."""
    num_truncated_passage_tokens: int = 0
    answer_ids: tuple[tuple[int, ...], ...] = ()
    """Token ids of the answers to score; none if the model has no tokenizer."""


class Model(ABC):
    """A model. It can render requests and be fingerprinted at once, and run requests after `load`.

    One object serves every dataset and every kind of request: all differences are in the request's form.
    """

    supports: ClassVar[frozenset[Method]] = frozenset({"generate"})
    """The methods of requests that it can run (see `prompts.request.Form.method`)."""
    scores_texts: ClassVar[bool] = True
    """Whether it computes log-likelihoods of any text, or only of a next token."""
    is_repeatable: ClassVar[bool] = True
    """Whether the same request gets the same response on CPUs; else, and on GPUs, a job asks a sample of the new ones
    again at its end (``recheck_fraction``)."""
    counts_tokens: ClassVar[bool] = True
    """Whether ``num_output_tokens`` is counted, and an output may end at ``max_new_tokens``."""
    sees_order: bool = True
    """Whether the order of passages can change a response."""
    charges_budget: ClassVar[bool] = False
    """Whether `run` charges ``budget`` itself, and ends when it is spent; else its caller does."""
    has_timeouts: ClassVar[bool] = False
    """Whether each request has a time limit of its own; then ``max_batch_seconds: auto`` sets none."""
    revision: ClassVar[int] = 1
    """Increase it with every change of the code that may change a response."""
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "tf32", "bfloat16", "float16")
    default_prompt: ClassVar[str] = "plain"
    """Name of the built-in prompt that it gets if the config names none."""

    def __init__(self, config: ReaderConfig) -> None:
        if config.dtype not in self.dtypes:
            dtypes = ", ".join(self.dtypes)
            raise InputError([f"reader.dtype: {config.kind} supports {dtypes}, not {config.dtype}"])
        self.config = config
        self.budget = Budget(config)
        self.memory_share = 1.0
        """Fraction of the GPU, or of the CPU memory for models, if several actors share it."""
        self.may_all_fail = False
        """Whether all requests may become errors (``max_error_fraction``); else many in a row end the job."""

    @property
    def code(self) -> object:
        """The code that may raise for reasons of the user's: a class or a function."""
        return type(self)

    @abstractmethod
    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        """Run requests, in any order. A response must not depend on the other requests.

        Yields:
            The index of each request in ``requests``, and its response; each index once.
        """

    def load(self) -> None:
        """Load the weights, or connect: once in each actor, before the first request."""
        return

    def fingerprint_fields(self) -> dict[str, object]:
        """Return everything about the model that may change a response: weights, tokenizer, precision; JSON values.

        The hash of these fields is the model's fingerprint. Settings that change only speed stay out.
        """
        return {"kind": self.config.kind, "options": self.config.options, "revision": self.revision}

    def resources(self) -> Resources:
        """Return the resources of one actor with this model."""
        return Resources()

    def facts(self) -> dict[str, object]:
        """Return properties of the model that were observed, such as a server's answers; JSON values, for manifests."""
        return {}

    def check_facts(self, first: Mapping[str, Any]) -> None:
        """Raise InputError unless the model is the one of its first responses, by its `facts` at that time."""
        return

    def notes(self) -> list[str]:
        """Return lines for the log, shown before the first request."""
        return []

    def check(self, form: Form) -> None:
        """Raise InputError unless the model supports requests of a form. Needs no weights."""
        return

    def render(self, requests: Sequence[Request]) -> Sequence[Rendered]:
        """Return the model's input for each request: a text, or messages if the prompt is a chat. Needs no weights."""
        return [render_text(request, text_of(request)) for request in requests]


def text_of(request: Request) -> str:
    """Return the whole prompt of a request, or the user's message of a chat."""
    return as_text(request.form.prompt, request.question, request.passages)


def render_text(request: Request, text: str) -> Rendered:
    """Return a request's `text_of`, which may have been truncated, as input for a model."""
    prompt = request.form.prompt
    if not prompt.is_chat:
        return Rendered(text=text)
    return Rendered(messages=tuple(as_messages(prompt, text, has_passages=bool(request.passages))))

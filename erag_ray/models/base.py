"""What every model is: requests in, responses out, in any order.

A backend is a subclass of `Model` with `run`, and `load` if it has weights. Those of this package that compute on this
machine's devices stand on `local.LocalModel`. Code outside the package is named ``package.module:Class``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from erag_ray.config import ReaderConfig
from erag_ray.errors import InputError
from erag_ray.requests import Form, Need, Prompt, Request, Response, as_messages, as_text

DEFAULT_BATCH = 32


class Resources(NamedTuple):
    """What one actor that holds a model needs.

    Attributes:
        num_gpus: of a cluster that has any; a share of one where several actors share it; 0: it needs none.
        num_cpus: None: an even share of what there is.
        weight_bytes: of its weights on disk, where a small model is faster than one process can prepare its requests;
            else 0.
        in_flight: requests that it works on at once.
    """

    num_gpus: float = 1.0
    num_cpus: int | None = None
    in_flight: int = 1
    weight_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A request as a model gets it.

    Attributes:
        text: the prompt; "" for a chat.
        messages: of a chat, each with ``role`` and ``content``.
        num_tokens: of the prompt; None where the model does not count them.
        num_truncated_question_tokens: cut from the question to make it fit.
        num_truncated_passage_tokens: cut from the passages.
        answer_ids: the request's answers in tokens, where they are to be scored; None for a model that does not tell.
    """

    text: str = ""
    messages: tuple[Mapping[str, str], ...] = ()
    num_tokens: int | None = None
    num_truncated_question_tokens: int = 0
    num_truncated_passage_tokens: int = 0
    answer_ids: tuple[tuple[int, ...], ...] | None = None


class Model(ABC):
    """A model: what it is and how it renders requests from the start, its answers after `load`.

    One object serves every dataset and every kind of request: what differs stands in the request's form.

    Attributes:
        supports: what it can do (see `requests.Form.needs`).
        scores_texts: whether its log-likelihoods are of any text, and not of a next token alone.
        sees_order: whether the order of passages can change a response.
        revision: to be raised whenever a change of the code may change a response.
        dtypes: the precisions that it can compute in.
        default_prompt: name of the built-in prompt that it gets where none is asked for.
        config: of the job.
        memory_share: of the GPU, or of the CPU models' part of the machine's memory, where several actors use it.
    """

    supports: ClassVar[frozenset[Need]] = frozenset({"generate"})
    scores_texts: ClassVar[bool] = True
    sees_order: bool = True
    revision: ClassVar[int] = 1
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "tf32", "bfloat16", "float16")
    default_prompt: ClassVar[str] = "plain"

    def __init__(self, config: ReaderConfig) -> None:
        if config.dtype not in self.dtypes:
            able = ", ".join(self.dtypes)
            raise InputError([f"reader.dtype: {config.kind} reads in {able}, not in {config.dtype}"])
        self.config = config
        self.memory_share = 1.0

    @abstractmethod
    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        """Answer requests, in any order; what one asks must not change what another gets.

        Yields:
            The place of each request in ``requests``, and its response; each place once.
        """

    def load(self) -> None:
        """Load the weights, or connect: once in each actor, before the first request."""
        return

    def identity(self) -> dict[str, object]:
        """All of the model that may change a response: weights, tokenizer, precision; JSON values. Not its speed."""
        return {"kind": self.config.kind, "options": self.config.options, "revision": self.revision}

    def resources(self) -> Resources:
        """What one actor with this model needs."""
        return Resources()

    def facts(self) -> dict[str, object]:
        """Return what was found out about the model and may interest later; JSON values, for manifests."""
        return {}

    def check_facts(self, first: Mapping[str, Any]) -> None:
        """Refuse to go on where the model is no longer what it was when its first responses were made.

        Args:
            first: `facts` of then.

        Raises:
            InputError: it is another one.
        """
        return

    def stop_sending(self) -> bool:
        """Begin nothing more: `run` ends once what is under way is answered. False: this model cannot."""
        return False

    def notes(self) -> list[str]:
        """Return lines for people, shown before the model is asked."""
        return []

    def batch_rows(self, form: Form) -> int:
        """Most requests of a form that it works on at once."""
        return self.config.batch_size or DEFAULT_BATCH

    def check(self, form: Form) -> None:
        """Refuse requests that this model can never answer. Needs no weights.

        Raises:
            InputError: it can answer none of this form.
        """
        return

    def render(self, requests: Sequence[Request]) -> Sequence[Rendered]:
        """Requests as the model gets them: texts, or messages where the form's prompt is a chat. Needs no weights."""
        return [_rendered(request.form.prompt, request) for request in requests]


def _rendered(prompt: Prompt, request: Request) -> Rendered:
    text = as_text(prompt, request.question, request.passages)
    if not prompt.is_chat:
        return Rendered(text=text)
    return Rendered(messages=tuple(as_messages(prompt, text, has_passages=bool(request.passages))))

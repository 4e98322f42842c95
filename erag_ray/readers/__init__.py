"""Readers: a batch of requests -> a batch of readings, with truncation, token counts and greedy decoding.

`READERS` names those that a config may name, `DERIVED` those that a job makes of one; `make_reader` makes one without
its weights, enough to count tokens and to know its fingerprint; `Reader.load` brings the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from erag_ray.config import ReaderConfig
from erag_ray.datasets import Dataset
from erag_ray.names import find
from erag_ray.prompts import VERDICTS
from erag_ray.readers.base import Failure, Output, Prompt, Reader, Request, failed, requests_of
from erag_ray.readers.causal import CausalReader
from erag_ray.readers.classifying import CausalClassifying, FidClassifying, IpaClassifying
from erag_ray.readers.echo import EchoReader
from erag_ray.readers.isolation import Isolation, encodable, without
from erag_ray.readers.judges import GradesJudge, YesNoJudge
from erag_ray.readers.likelihood import CausalLikelihood, FidLikelihood, IpaLikelihood
from erag_ray.readers.memory import keep_freed_memory
from erag_ray.readers.models import quiet
from erag_ray.readers.stopping import CausalStopping, FidStopping, IpaStopping, named_score
from erag_ray.readers.t5 import FidReader, IpaReader
from erag_ray.schemas import InputError
from erag_ray.store import fingerprint
from erag_ray.user_code import checking, running

__all__ = [
    "DERIVED",
    "READERS",
    "Failure",
    "Isolation",
    "Output",
    "Prompt",
    "Reader",
    "Request",
    "check_kind",
    "encodable",
    "failed",
    "identity_of",
    "keep_freed_memory",
    "likelihood_of",
    "load_reader",
    "make_reader",
    "reader_for",
    "reader_id",
    "requests_of",
    "score_only_of",
    "without",
]


def make_reader(config: ReaderConfig) -> Reader:
    """The reader that a config describes, without its weights.

    Raises:
        InputError: there is no such kind, its model cannot be found or read, or it is user code and raises.
    """
    quiet()
    kind = DERIVED.get(config.kind) or check_kind(config.kind)
    if not (isinstance(kind, type) and issubclass(kind, Reader)):
        what = "not a subclass" if isinstance(kind, type) else f"a {type(kind).__name__}, not a subclass"
        raise InputError([f"reader.kind: {config.kind} is {what} of erag_ray.readers.Reader"])
    with checking(f"reader.kind: {config.kind}", kind):
        reader = kind(config)
        if getattr(reader, "config", None) is not config:
            raise TypeError("its __init__ does not call super().__init__(config)")
    return reader


def identity_of(reader: Reader) -> dict[str, object]:
    """`Reader.identity`.

    Raises:
        InputError: it is user code, and raises.
    """
    with checking(f"reader.kind: {reader.config.kind}: identity", type(reader)):
        found = reader.identity()
        fingerprint(found)
        return found


def load_reader(reader: Reader) -> None:
    """`Reader.load`.

    Raises:
        JobError: it is user code, and raises.
    """
    with running(f"reader {reader.config.kind}: load", type(reader)):
        reader.load()


def check_kind(name: str) -> type[Reader]:
    """The reader of a kind that a config may name.

    Raises:
        InputError: there is none, or only jobs make it.
    """
    try:
        return find("reader", name, READERS)
    except ValueError as error:
        raise InputError([f"reader.kind: {error}"]) from error


def reader_for(config: ReaderConfig, dataset: Dataset) -> ReaderConfig:
    """The reader with everything filled in that depends on the dataset."""
    return dataclasses.replace(
        config,
        max_new_tokens=config.max_new_tokens or dataset.max_new_tokens,
        family=config.family or dataset.family,  # type: ignore[arg-type]
    )


def reader_id(reader: Reader, identity: Mapping[str, object] | None = None) -> str:
    """The reader's name in tables and folders: its kind and 16 digits of its fingerprint.

    Args:
        reader: the reader.
        identity: its `Reader.identity`, where that is at hand: it takes a second for each GB of weights.
    """
    kind = reader.config.kind.rpartition(":")[2]
    return f"{kind}-{fingerprint(identity or identity_of(reader))[:16]}"


def likelihood_of(config: ReaderConfig) -> ReaderConfig:
    """The reader that says how likely the gold answers are to this one.

    Raises:
        InputError: this kind of reader has none.
    """
    kind = f"likelihood_{config.kind}"
    if kind not in DERIVED:
        able = ", ".join(name for name in READERS if f"likelihood_{name}" in DERIVED)
        raise InputError([f"reader.kind: {config.kind} cannot say how likely an answer is; {able} can"])
    return _in_floats(dataclasses.replace(config, kind=kind))


def _in_floats(config: ReaderConfig) -> ReaderConfig:
    """For likelihoods: in integers they would be of another reader."""
    return dataclasses.replace(config, dtype="float32") if config.dtype == "int8" else config


def score_only_of(config: ReaderConfig, dataset: Dataset, how: str) -> ReaderConfig | None:
    """The reader to ask in place of this one where only the score of an output is wanted.

    Args:
        config: the reader.
        dataset: what is read.
        how: ``early_stop``, or ``classification`` of what has but a few answers and ``early_stop`` of the rest.

    Returns:
        None for a dataset whose score needs whole outputs.

    Raises:
        InputError: this kind of reader has none, or there is no such score.
    """
    own = reader_for(config, dataset)
    may_classify = how == "classification" and own.family in VERDICTS
    if not may_classify and named_score(dataset.score).may_match is None:
        return None
    own = _in_floats(own) if may_classify else own
    kind = f"{'classify' if may_classify else 'stop'}_{config.kind}"
    if kind not in DERIVED:
        able = ", ".join(name for name in READERS if f"stop_{name}" in DERIVED)
        raise InputError([f"score_only: {config.kind} cannot read for a score alone; {able} can"])
    return dataclasses.replace(own, kind=kind, score=dataset.score)


READERS: dict[str, type[Reader]] = {
    "fid": FidReader,
    "ipa": IpaReader,
    "causal": CausalReader,
    "echo": EchoReader,
}

DERIVED: dict[str, type[Reader]] = {
    "judge_yes_no": YesNoJudge,
    "judge_grades": GradesJudge,
    "likelihood_fid": FidLikelihood,
    "likelihood_ipa": IpaLikelihood,
    "likelihood_causal": CausalLikelihood,
    "stop_fid": FidStopping,
    "stop_ipa": IpaStopping,
    "stop_causal": CausalStopping,
    "classify_fid": FidClassifying,
    "classify_ipa": IpaClassifying,
    "classify_causal": CausalClassifying,
}

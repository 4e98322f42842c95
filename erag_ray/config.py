"""What a job is asked to do: frozen dataclasses <-> one YAML file and the command line (by jsonargparse).

Every job takes the same `JobConfig`, so one YAML file serves `compare` and the single steps. Unknown keys are
errors. A new key is one field with a docstring; ``--help`` shows it.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jsonargparse
import yaml


@dataclass(frozen=True, kw_only=True)
class ReaderConfig:
    """The LLM of the RAG system."""

    kind: str = "fid"
    """fid (T5, Fusion-in-Decoder), ipa (T5, all passages in one prompt), causal (any decoder-only model),
    echo (a fake without weights), or package.module:Class."""

    model: str | None = None
    """A folder, a Hugging Face hub name, a .gguf file, or package:NAME/FILE for a file that an installed Python
    package carries. Code inside a model is never run."""

    model_revision: str | None = None
    """Branch, tag or commit of a hub model."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of weights and arithmetic. bfloat16 is several times faster where the hardware has it and may
    change a few outputs."""

    max_prompt_tokens: int | None = None
    """Longest input, in tokens: for fid per passage with its question (null: 250), for ipa the whole prompt
    (null: 2048), for causal the whole prompt (null: what the model's context leaves, at most 4096)."""

    max_new_tokens: int | None = None
    """Longest output, in tokens (null: by dataset: 150 for dialogue, else 50)."""

    prompt: Literal["plain", "chat"] = "plain"
    """causal only: a plain few-shot prompt, or the tokenizer's chat template."""

    family: Literal["question", "claim", "dialogue"] | None = None
    """Which instruction and examples a causal reader sees (null: by dataset)."""

    num_examples: int = 2
    """causal, plain prompt: how many worked examples stand before the question (0 to 2)."""

    stop_at_newline: bool = True
    """causal only: an output ends at its first line break."""

    batch_size: int = 32
    """Most requests in one batch. Not part of the reader's fingerprint."""

    batch_tokens: int = 16384
    """Most prompt tokens in one batch, padding included; one longer request goes alone."""

    delay_seconds: float = 0.0
    """echo only: how long one reading takes, for rehearsals."""

    def __post_init__(self) -> None:
        _require(self.batch_size >= 1, f"reader.batch_size must be at least 1, got {self.batch_size}")
        _require(self.batch_tokens >= 1, f"reader.batch_tokens must be at least 1, got {self.batch_tokens}")
        _require(0 <= self.num_examples <= 2, f"reader.num_examples must be 0 to 2, got {self.num_examples}")
        for name in ("max_prompt_tokens", "max_new_tokens"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"reader.{name} must be at least 1, got {value}")
        _require(
            self.delay_seconds >= 0, f"reader.delay_seconds must not be negative, got {self.delay_seconds}"
        )


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """Inputs, reader, what to compute, and where it runs."""

    queries: list[str] = field(default_factory=list)
    """Question files: KILT task files (.jsonl, .jsonl.gz) or BEIR queries.jsonl with answers in its metadata."""

    query_format: str = "auto"
    """Form of the question files: auto, kilt or beir."""

    qrels: list[str] = field(default_factory=list)
    """BEIR qrels (TSV): the gold passages of BEIR questions."""

    triviaqa_questions: list[str] = field(default_factory=list)
    """TriviaQA's original JSON files: KILT's TriviaQA files hold ids without questions."""

    dataset: str | None = None
    """Name of the dataset, for files that do not say it."""

    score: str | None = None
    """Score of one output against its gold answers (null: by dataset): exact_match, token_f1, accuracy,
    rouge_l_kilt, rouge_l_google, or package.module:name."""

    passages: list[str] = field(default_factory=list)
    """Passage files: JSONL (.gz) or Parquet with doc_id, page_id, title, text; or BEIR corpus.jsonl."""

    runs: dict[str, str] = field(default_factory=dict)
    """The retrievers: name -> file of ranked lists (TREC, .gz too; Parquet; KILT predictions as .jsonl)."""

    trec_ties: Literal["trec9", "trec10"] = "trec9"
    """Scores of TREC runs are compared as trec_eval 9 (float32) or trec_eval 10 (float64) does; ties go by
    document id, descending."""

    num_queries: int | None = None
    """Evaluate a sample of this many questions, the same for every run (null: all)."""

    seed: int = 0
    """Seed of the sample of questions and of the bootstrap."""

    reader: ReaderConfig = field(default_factory=ReaderConfig)
    """The LLM of the RAG system."""

    depth: int = 10
    """Lists are cut to this many documents before anything else; each of these documents gets a label."""

    end_to_end_depths: list[int] = field(default_factory=list)
    """How many documents the reader gets end to end; several in one go (empty: only depth)."""

    annotators: list[str] = field(
        default_factory=lambda: ["erag", "contains_answer_dpr", "contains_answer_kilt", "provenance"]
    )
    """Who labels the documents: erag, contains_answer_dpr, contains_answer_kilt, provenance, or
    package.module:name."""

    measures: list[str] | None = None
    """Measures of a ranked list: P, R, AP, RR, nDCG, Success, or package.module:name (null: all that the
    labels allow: graded labels without a threshold allow P, nDCG and Success)."""

    cutoffs: list[int] = field(default_factory=lambda: [1, 3, 5, 10])
    """Measures are taken at these ranks and at each full depth."""

    threshold: float | None = None
    """A graded label of at least this counts as relevant in AP, RR and R."""

    statistics: list[str] = field(default_factory=lambda: ["kendall_tau_b", "spearman_rho"])
    """Agreement between a measure and the end-to-end score."""

    num_resamples: int = 1000
    """Bootstrap resamples of the questions behind each interval."""

    confidence: float = 0.95
    """Coverage of the intervals."""

    out: str = "results/job"
    """Folder of this job's sealed tables and report; a path or URI that all nodes see."""

    store: str = "results/store"
    """Folder of all readings, shared by jobs: what stands there is never read again."""

    ray_address: str | None = None
    """Cluster to run on (null: the one that submitted the job, else a local Ray for this job alone)."""

    num_readers: int | None = None
    """Reader actors (null: one per GPU; without GPUs one)."""

    cpus_per_reader: int | None = None
    """CPU cores of each reader actor (null: an even share on GPUs, all cores without)."""

    rows_per_block: int | None = None
    """Requests in one unit of work and of retry (null: by the amount of work, 128 to 4096)."""

    write_every_seconds: float = 20.0
    """A reader writes what it has read at least this often (as soon as the batch in hand is done)."""

    max_error_share: float = 0.0
    """Largest share of requests that may end as error rows before the job counts as failed."""

    progress: bool = True
    """Show a progress bar."""

    def __post_init__(self) -> None:
        _require(self.depth >= 1, f"depth must be at least 1, got {self.depth}")
        for depth in self.end_to_end_depths:
            _require(
                1 <= depth <= self.depth, f"end_to_end_depths: {depth} is not within 1..depth={self.depth}"
            )
        for cutoff in self.cutoffs:
            _require(cutoff >= 1, f"cutoffs: {cutoff} is not at least 1")
        _require(0 < self.confidence < 1, f"confidence must lie between 0 and 1, got {self.confidence}")
        _require(self.num_resamples >= 100, f"num_resamples must be at least 100, got {self.num_resamples}")
        for name in ("num_queries", "num_readers", "cpus_per_reader", "rows_per_block"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"{name} must be at least 1, got {value}")
        for name in ("seed", "write_every_seconds"):
            value = getattr(self, name)
            _require(value >= 0, f"{name} must not be negative, got {value}")
        _require(
            0 <= self.max_error_share <= 1, f"max_error_share must lie in 0..1, got {self.max_error_share}"
        )

    @property
    def depths(self) -> list[int]:
        """The depths of end-to-end readings, ascending, without repeats."""
        return sorted(set(self.end_to_end_depths)) or [self.depth]


def parse(description: str, argv: Sequence[str] | None = None) -> JobConfig:
    """The job's config from ``--config FILE.yaml`` and overrides; exits with code 2 and a message if it is wrong."""
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    usage = "%(prog)s --config FILE.yaml [--KEY VALUE ...]"
    parser = jsonargparse.ArgumentParser(
        description=description, usage=usage, default_env=False, allow_abbrev=False
    )
    parser.add_argument("--config", action="config", help="YAML file with any of the keys below")
    parser.add_class_arguments(JobConfig, fail_untyped=True)
    try:
        parsed = parser.parse_args(argv)
    except UnicodeDecodeError as error:
        parser.error(f"the config file is not UTF-8: {error}")
    files = parsed.pop("config", None) or []
    try:
        for file in files:
            _refuse_repeated_keys(yaml.compose(pathlib.Path(str(file)).read_text()), str(file))
        return expand(parser.instantiate(parsed).as_dict())
    except (TypeError, ValueError) as error:
        parser.error(str(error))


def expand(values: dict[str, Any]) -> JobConfig:
    """A config from plain values, with ``$NAME`` and ``~`` in its paths replaced.

    Raises:
        ValueError: a value is out of range or an environment variable is not set.
    """
    reader = values.get("reader", ReaderConfig())
    if isinstance(reader, ReaderConfig) and reader.model is not None:
        values["reader"] = dataclasses.replace(reader, model=_expand(reader.model))
    for name in ("queries", "qrels", "triviaqa_questions", "passages"):
        values[name] = [_expand(path) for path in values.get(name, [])]
    for name in ("out", "store"):
        if name in values:
            values[name] = _expand(values[name])
    values["runs"] = {run: _expand(path) for run, path in values.get("runs", {}).items()}
    return JobConfig(**values)


def _expand(path: str) -> str:
    expanded = os.path.expanduser(os.path.expandvars(path))
    unset = re.search(r"\$\{?(\w+)", expanded)
    if unset:
        raise ValueError(f"{path}: the environment variable {unset[1]} is not set")
    return expanded


def _refuse_repeated_keys(node: yaml.Node | None, file: str) -> None:
    """YAML would keep the last of two equal keys, so that a run or a setting would vanish in silence."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, file)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise ValueError(f"{file}:{key.start_mark.line + 1}: the key {key.value} comes twice")
            seen.add(key.value)
            _refuse_repeated_keys(value, file)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)

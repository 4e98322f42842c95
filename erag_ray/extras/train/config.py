"""Configuration of a training: examples, curriculum, optimisation, and resources."""

import dataclasses
from dataclasses import field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from erag_ray.config.keys.values import (
    Above0,
    AtLeast0,
    AtLeast1,
    Flag,
    Keys,
    Number,
    Path,
    Share,
    Text,
    Whole,
    require,
)
from erag_ray.config.reader import ReaderConfig

WEIGHT_DECAY = 1e-2
"""Of AdamW; layer norms and biases have none."""
MAX_GRAD_NORM = 1.0
"""Gradients are scaled down to this norm."""


class ScratchConfig(Keys):
    """A T5 model from scratch, with tied input and output embeddings and a tokenizer of its own."""

    vocab_size: Annotated[Whole, Field(ge=256)] = 8192
    """Entries of the tokenizer, which is trained on the training text (fewer if the text has no more)."""

    d_model: AtLeast1 = 256
    """Width of the model."""

    d_kv: AtLeast1 = 64
    """Width of one attention head."""

    d_ff: AtLeast1 = 1024
    """Width of the feed-forward layers."""

    num_layers: AtLeast1 = 4
    """Layers of the encoder."""

    num_decoder_layers: AtLeast1 = 2
    """Layers of the decoder."""

    num_heads: AtLeast1 = 4
    """Attention heads of each layer."""

    dropout_rate: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    """Share of activations that training drops."""

    feed_forward_proj: Text = "relu"
    """Feed-forward layers: relu, gated-gelu, or another of T5's."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the weights in the saved file; training itself keeps them in float32."""


class ExamplesConfig(Keys):
    """Questions with answers, and the passages to read for them."""

    queries: list[Path] = field(default_factory=list)
    """Question files: JSON Lines (.gz too) of KILT tasks, of BEIR queries with answers in their metadata, or of
    {"question", "answers", "id"}; or the JSON of SQuAD or KLUE-MRC."""

    query_format: Text = "auto"
    """Form of the question files: auto (by the fields of each record), kilt, beir, plain, squad, klue, or
    package.module:name."""

    triviaqa_questions: list[Path] = field(default_factory=list)
    """TriviaQA's original JSON files: KILT's TriviaQA files have ids without questions."""

    passages: list[Path] = field(default_factory=list)
    """Passage files: JSONL (.gz) or Parquet with doc_id, page_id, title, text; or BEIR corpus.jsonl."""

    run: list[Path] = field(default_factory=list)
    """Ranked lists of passages for the questions (TREC, .gz too; Parquet; KILT predictions as .jsonl); of several
    files each question is in one."""

    given: list[Path] = field(default_factory=list)
    """Files of questions with their passage (.jsonl, .jsonl.gz): question, title (optional), context, answers."""

    dataset: Text | None = None
    """Name of the dataset, for files that do not say it."""

    score: Text | None = None
    """Score of one output against its gold answers (null: by dataset)."""

    num_questions: AtLeast1 | None = None
    """Use a sample of this many questions (null: all)."""

    unanswerable_share: Share = 0.0
    """Share of the questions (0 to 1) that get a second example, with passages of another question of the dataset and
    the target NO-RESPONSE, in the same prompt: the reader learns to abstain, also if it is not told to."""


class StageConfig(Keys):
    """One stage of the curriculum: how long, and what the reader sees."""

    epochs: AtLeast1 | None = None
    """Passes over the training questions (this or steps)."""

    steps: AtLeast1 | None = None
    """Optimiser steps (this or epochs)."""

    num_passages: list[AtLeast0] = field(default_factory=lambda: [50])
    """Passages for a question; of several numbers one is drawn for each question. 0 is only the question."""

    num_gold: AtLeast0 = 0
    """0: the list as the run has it. n: at most n gold passages come first, the run's others fill the list (in an
    order that is drawn, so that a place tells nothing)."""

    crop_words: list[AtLeast1] | None = None
    """Each passage is cut to a window of about this number of words (of several numbers one is drawn for each
    question; null: whole passages): of a gold passage one that contains evidence, else an answer; of the others the
    one with most of the question's words, so that what looks right stays."""

    copies: dict[str, AtLeast0] = field(default_factory=dict)
    """How often an epoch asks each question of a dataset, by the dataset's name (others: once; 0: never)."""

    batch_size: AtLeast1 | None = None
    """Questions in one optimiser step in this stage (null: as for all)."""

    def _check(self) -> None:
        text = f"epochs: a stage needs either epochs or steps, got epochs={self.epochs}, steps={self.steps}"
        require((self.epochs is None) != (self.steps is None), text)
        require(bool(self.num_passages), "num_passages: no number is given")
        require(self.crop_words != [], "crop_words: no number is given (null for whole passages)")


class TrainConfig(Keys):
    """Fine-tuning of a FiD or IPA reader; the defaults are the settings of the eRAG paper."""

    EVERYDAY: ClassVar = {
        "Reader": ("reader.kind", "reader.model", "scratch"),
        "Questions": (
            "train.queries",
            "train.passages",
            "train.run",
            "dev.queries",
            "dev.passages",
            "dev.run",
        ),
        "Training": ("curriculum", "learning_rate", "batch_size", "eval_steps", "num_workers"),
        "Output": ("out",),
    }

    reader: ReaderConfig = field(default_factory=ReaderConfig)
    """The reader: kind fid or ipa; its model is where training starts from (null with scratch); limits and prompts
    are those of reading. Its batch_size and batch_tokens are for evaluation; the latter also bounds a
    pass of the encoder in training (null: 16384)."""

    scratch: ScratchConfig | None = None
    """Start from a new model of this size instead of reader.model."""

    train: ExamplesConfig = field(default_factory=ExamplesConfig)
    """Training questions."""

    dev: ExamplesConfig = field(default_factory=ExamplesConfig)
    """Questions to choose the best weights by, read as the last stage has it: its largest num_passages, its
    num_gold, whole passages (none: the last weights are the result)."""

    curriculum: list[StageConfig] = field(default_factory=lambda: [StageConfig(epochs=10)])
    """Stages, one after the other (default: 10 epochs of 50 passages)."""

    learning_rate: Above0 = 5e-5
    """Largest learning rate of AdamW."""

    warmup_ratio: Share = 0.05
    """The learning rate rises linearly over this share of all steps."""

    schedule: Literal["linear", "constant"] = "linear"
    """After that it falls linearly to 0, or stays."""

    batch_size: AtLeast1 = 64
    """Questions in one optimiser step, over all workers and micro-batches."""

    micro_batch_tokens: AtLeast1 = 32768
    """Most segment tokens in one forward and backward pass; one larger example is a pass of its own."""

    seed: AtLeast0 = 0
    """Seed of everything that is drawn: new weights, order, answers, crops, dropout."""

    bf16: Flag = False
    """Matrix products in bfloat16, weights in float32: several times faster where the hardware has it."""

    gradient_checkpointing: Flag = False
    """Compute the encoder's activations again in the backward pass instead of keeping them."""

    eval_steps: AtLeast1 = 1000
    """Steps between evaluations on the dev questions; there is one at the end in any case."""

    eval_questions: AtLeast1 | None = 500
    """Most dev questions of each dataset in an evaluation (null: all)."""

    save_steps: AtLeast1 = 500
    """Steps between checkpoints, from which a killed training continues."""

    num_workers: AtLeast1 | None = None
    """Data-parallel workers (null: one per GPU, without GPUs one)."""

    ray_address: Text | None = None
    """Cluster to run on (null: the one that submitted the job, else a local Ray only for this job)."""

    out: Path = "results/reader"
    """Folder of the training: checkpoints, log.csv, and the result in reader/. All nodes see it under this path."""

    progress: Flag = True
    """Show how far the training is."""

    @property
    def start_reader(self) -> ReaderConfig:
        """The reader with the model that training starts from, a folder or hub name."""
        return dataclasses.replace(self.reader, model=f"{self.out}/start") if self.scratch else self.reader

    def _check(self) -> None:
        require(bool(self.curriculum), "curriculum: no stage is given")
        require("://" not in self.out, f"out must be a folder that all nodes see, not a URI, got {self.out}")

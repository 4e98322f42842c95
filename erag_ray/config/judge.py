"""The judge: the LLM behind the annotators llm_relevance and llm_relevance_graded, and behind the score judged."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field

from erag_ray.config.keys.values import AtLeast1, Number, Text, Whole, require
from erag_ray.config.model import EngineKeys, ModelKeys, ServerKeys
from erag_ray.config.reader import ReaderConfig


class JudgeKeys(ModelKeys):
    """Task and prompt of a judge."""

    kind: Text = "causal"
    """causal, vllm, served (see reader.kind), or package.module:Class. With a GPU the paper's choice is causal, model
    mistralai/Mistral-7B-Instruct-v0.2, with prompt: chat."""

    scale: Literal["yes_no", "grades"] = "yes_no"
    """Relevance: yes_no, the probability of yes against no as the first token; or grades, written as 0 to 3."""

    relevant_from: Number | None = None
    """llm_relevance is 1 from this probability, or this grade, on (null: 0.5, or 2)."""

    depth: AtLeast1 | None = None
    """Relevance: number of documents of each list that are judged, from the first on; the labels of the others are
    null, and so are measures that look further or have an ideal (null: all). The score judged is of every output."""

    num_queries: AtLeast1 | None = None
    """Relevance: number of questions of each dataset that are judged, drawn by the job's seed (null: all)."""

    dtype: Literal["float32", "tf32", "bfloat16", "float16"] = "float32"
    """Precision of weights and arithmetic; tf32 needs a GPU (see reader.dtype)."""

    prompt: Literal["plain", "chat"] | None = None
    """A plain few-shot prompt, or a chat (null: chat for served with api: chat, else plain)."""

    num_examples: Annotated[Whole, Field(ge=0, le=4)] = 4
    """Plain prompt: number of worked examples before the question (0 to 4)."""

    def _check(self) -> None:
        most, least = 1 if self.scale == "yes_no" else 3, self.relevant_from
        text = f"judge.relevant_from must be above 0 and at most {most} on this scale, got {least}"
        require(least is None or 0 < least <= most, text)

    @property
    def threshold(self) -> float:
        """`relevant_from` as a share of the highest answer."""
        default, most = (0.5, 1) if self.scale == "yes_no" else (2.0, 3)
        return (default if self.relevant_from is None else self.relevant_from) / most


class JudgeConfig(ServerKeys, EngineKeys, JudgeKeys):
    """A language model that grades.

    Of a question and one passage it says whether the passage helps, without a gold answer; of a question, its gold
    answers and an output, whether the output is right (score: judged).
    """

    @property
    def is_chat(self) -> bool:
        """Whether the prompt is a chat."""
        by_kind = "chat" if self.kind == "served" and self.api == "chat" else "plain"
        return (self.prompt or by_kind) == "chat"

    def reader(self) -> ReaderConfig:
        """The judge's model as a reader's."""
        shared = [one.name for kind in (ModelKeys, EngineKeys, ServerKeys) for one in fields(kind)]
        return ReaderConfig(**{name: getattr(self, name) for name in [*shared, "dtype"]})

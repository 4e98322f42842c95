"""The judge: the LLM behind the annotators llm_relevance and llm_relevance_graded, and behind the score judged."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from erag_ray.config.check import require
from erag_ray.config.engine import EngineKeys
from erag_ray.config.keys import check_types
from erag_ray.config.reader import ReaderConfig
from erag_ray.config.served import ServerKeys


@dataclass(frozen=True, kw_only=True)
class JudgeKeys:
    """Task and prompt of a judge, and the keys of one that this package runs itself."""

    PATHS: ClassVar = ("model",)

    kind: str = "causal"
    """causal, vllm, served (see reader.kind), or package.module:Class."""

    options: dict[str, Any] = field(default_factory=dict)
    """package.module:Class only: whatever the class takes; it checks them itself."""

    model: str | None = None
    """A folder, a Hugging Face hub name, a .gguf file, or package:NAME/FILE. Code inside a model is never run. With a
    GPU the paper's choice is mistralai/Mistral-7B-Instruct-v0.2, with prompt: chat."""

    model_revision: str | None = None
    """Branch, tag or commit of a hub model."""

    scale: Literal["yes_no", "grades"] = "yes_no"
    """Relevance: yes_no, the probability of yes against no as the first token; or grades, 0 to 3, as it is written."""

    relevant_from: float | None = None
    """llm_relevance is 1 from this probability, or this grade, on (null: 0.5, or 2)."""

    depth: int | None = None
    """Relevance: only the first so many documents of each list are judged; the labels of the others are null, and so
    are measures that look further or have an ideal (null: all). The score judged is of every output."""

    num_queries: int | None = None
    """Relevance: only so many questions of each dataset are judged, drawn by the job's seed (null: all)."""

    dtype: Literal["float32", "tf32", "bfloat16", "float16"] = "float32"
    """Precision of weights and arithmetic; tf32 needs a GPU (see reader.dtype)."""

    max_prompt_tokens: int | None = None
    """Longest prompt, in tokens (null: what the model's context leaves, at most 4096)."""

    prompt: Literal["plain", "chat"] | None = None
    """A plain few-shot prompt, or a chat (null: chat for served with api: chat, else plain)."""

    num_examples: int = 4
    """Plain prompt: how many worked examples stand before the question (0 to 4)."""

    batch_size: int | None = None
    """Most pairs in one batch (null: as for the reader)."""

    batch_tokens: int | None = None
    """Most prompt tokens in one batch, padding included (null: as for the reader)."""

    def __post_init__(self) -> None:
        require(0 <= self.num_examples <= 4, f"judge.num_examples must be 0 to 4, got {self.num_examples}")
        for name in ("depth", "num_queries", "max_prompt_tokens", "batch_size", "batch_tokens"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"judge.{name} must be at least 1, got {value}")
        most = 1.0 if self.scale == "yes_no" else 3.0
        least = self.relevant_from
        within = least is None or 0 < least <= most
        require(
            within, f"judge.relevant_from must be above 0 and at most {most:g} on this scale, got {least}"
        )

    @property
    def threshold(self) -> float:
        """`relevant_from` as a share of the highest answer."""
        least = self.relevant_from
        if self.scale == "yes_no":
            return 0.5 if least is None else least
        return (2.0 if least is None else least) / 3


@dataclass(frozen=True, kw_only=True)
class JudgeConfig(ServerKeys, EngineKeys, JudgeKeys):
    """A language model that grades.

    Of a question and one passage it says whether the passage helps, without a gold answer; of a question, its gold
    answers and an output, whether the output is right (score: judged).
    """

    def __post_init__(self) -> None:
        check_types(self)
        JudgeKeys.__post_init__(self)
        EngineKeys.__post_init__(self)
        ServerKeys.__post_init__(self)

    @property
    def is_chat(self) -> bool:
        """Whether the prompt is a chat."""
        by_kind = "chat" if self.kind == "served" and self.api == "chat" else "plain"
        return (self.prompt or by_kind) == "chat"

    def reader(self) -> ReaderConfig:
        """The judge's model as a reader's."""
        shared = {
            one.name: getattr(self, one.name) for kind in (ServerKeys, EngineKeys) for one in fields(kind)
        }
        return ReaderConfig(
            **shared,
            kind=self.kind,
            options=self.options,
            model=self.model,
            model_revision=self.model_revision,
            dtype=self.dtype,
            max_prompt_tokens=self.max_prompt_tokens,
            batch_size=self.batch_size,
            batch_tokens=self.batch_tokens,
        )

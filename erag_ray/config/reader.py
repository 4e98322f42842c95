"""The reader of a job, and its judge: model, limits, batches, task and prompt."""

from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from erag_ray.config.keys.values import AtLeast1, Flag, NotNegative, Number, Text, Whole, require
from erag_ray.config.model import EngineKeys, ModelKeys, ServerKeys
from erag_ray.config.prompt import BUILT_IN, FILE_ENDINGS, PROMPT_CHOICES, PromptConfig, read_prompt

KINDS = ("fid", "ipa", "causal", "vllm", "served", "echo", "function")
"""Of the models of this package."""
T5_KINDS = ("fid", "ipa")
CHAT_PROMPTS = ("chat", "question_first")
SPEED_KEYS = (
    "batch_size", "batch_tokens", "simulated_latency_seconds", "tensor_parallel_size", "engine_process",
    # how a server is reached
    "base_url", "concurrency", "requests_per_minute", "tokens_per_minute", "timeout_seconds", "patience_seconds",
    "api_key_env", "price_per_million",
)  # fmt: skip
"""Keys that do not change what a model says."""
FORM_KEYS = (
    "max_prompt_tokens", "max_new_tokens", "prompt", "family", "titles", "num_examples", "stop_at_newline",
    "ask_to_abstain",
)  # fmt: skip
"""Keys that are in the form of each request, not in the model's fingerprint."""
NEW_KEYS = {"titles": True, "engine_args": {}, "ask_to_abstain": True}
"""Keys that tables of older versions lack, and what they had in their place."""


class ReaderKeys(ModelKeys):
    """Task and prompt of the reader."""

    dtype: Literal["float32", "tf32", "bfloat16", "float16", "int8"] = "float32"
    """Precision of weights and arithmetic. bfloat16 is several times faster where the hardware has it and may
    change a few outputs. tf32, for GPUs from the A100 on: weights in float32, products by the first 10 bits of their
    fractions; not for vllm. int8, for T5 on CPUs that multiply bytes (AVX-512 VNNI): only products are in integers,
    everything between them in float32."""

    max_new_tokens: AtLeast1 | None = None
    """Longest output, in tokens (null: by dataset: 150 for dialogue, else 50)."""

    prompt: Text | PromptConfig | None = None
    """t5 ("question: ... title: ... context: ..."), plain (instruction, worked examples, passages, question), chat (the
    same without examples, through the tokenizer's chat template), question_first (a chat with the passages last: all
    prompts of a question start alike, which servers' prefix caches use), a YAML file, or its keys: template, passage,
    separator, without_passages, system, examples, chat (null: t5 for fid and ipa, question_first for served and vllm,
    else plain). Part of the reader's fingerprint."""

    family: Literal["question", "claim", "dialogue"] | None = None
    """Instruction and examples of all prompts but t5's, and which end of a long question stays (null: by dataset)."""

    titles: Flag = True
    """Show the reader the titles of passages. false: passages are in its prompt as if they had none; responses with
    and without titles are never used for each other. What the judge, the annotators and retrieval see stays."""

    num_examples: Annotated[Whole, Field(ge=0, le=2)] = 2
    """plain prompt: number of worked examples before the question (0 to 2)."""

    stop_at_newline: Flag = True
    """causal and vllm: an output ends at its first line break."""

    ask_to_abstain: Flag = True
    """Where abstention is measured (usable, udcg, distracting): tell the reader to respond with NO-RESPONSE if no
    passage contains the answer. false: for a reader trained to do so without being told (train.unanswerable_share)."""

    simulated_latency_seconds: NotNegative = 0.0
    """echo only: how long one reading takes, for rehearsals."""

    def _check(self) -> None:
        if isinstance(self.prompt, str) and self.prompt.endswith(FILE_ENDINGS):
            object.__setattr__(self, "prompt", read_prompt(self.prompt))
        known = not isinstance(self.prompt, str) or self.prompt in BUILT_IN
        require(known, f"prompt must be one of {PROMPT_CHOICES}, got {self.prompt}")


class ReaderConfig(ServerKeys, EngineKeys, ReaderKeys):
    """The LLM of the RAG system."""

    @property
    def is_chat(self) -> bool:
        """Whether the reader is a chat model: its prompt goes through a chat template, here or at a server."""
        if isinstance(self.prompt, PromptConfig):
            return self.prompt.chat and self.kind not in T5_KINDS
        is_first = self.kind in ("vllm", "function") or (self.kind == "served" and self.api == "chat")
        by_kind = "question_first" if is_first else "plain"
        return (self.prompt or by_kind) in CHAT_PROMPTS


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


def output_settings(config: Any) -> dict[str, Any]:
    """The keys of a reader's or judge's config that may change what it says.

    Those of `NEW_KEYS` are among them only where they differ from what was before: older tables stay valid.
    """
    settings = {key: value for key, value in asdict(config).items() if key not in SPEED_KEYS}
    return {key: value for key, value in settings.items() if key not in NEW_KEYS or value != NEW_KEYS[key]}

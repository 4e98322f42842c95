"""The reader of a job: its model, its limits, its batches."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from erag_ray.config.check import require
from erag_ray.config.engine import EngineKeys
from erag_ray.config.keys import check_types
from erag_ray.config.prompt import BUILT_IN, FILE_ENDINGS, PROMPT_CHOICES, PromptConfig, read_prompt
from erag_ray.config.served import ServerKeys

KINDS = ("fid", "ipa", "causal", "vllm", "served", "echo", "function")
"""Of the models of this package."""
T5_KINDS = ("fid", "ipa")
CHAT_PROMPTS = ("chat", "question_first")
SPEED_KEYS = (
    "batch_size",
    "batch_tokens",
    "simulated_latency_seconds",
    *ServerKeys.ACCESS_KEYS,
    *EngineKeys.ENGINE_SPEED_KEYS,
)
NEW_KEYS = {"titles": True, "engine_args": {}, "ask_to_abstain": True}
"""Keys that tables of older versions lack, and what they had in their place."""


@dataclass(frozen=True, kw_only=True)
class ReaderKeys:
    """Task and prompt of the reader, and the keys of one that this package runs itself."""

    PATHS: ClassVar = ("model",)

    kind: str = "fid"
    """fid (T5, Fusion-in-Decoder), ipa (T5, all passages in one prompt), causal (any decoder-only model), vllm (the
    same, computed by vLLM), served (any model behind a server with OpenAI's API), echo (a fake without weights),
    function (from Python alone: erag_ray.Function), or package.module:Class."""

    options: dict[str, Any] = field(default_factory=dict)
    """package.module:Class only: whatever the class takes; it checks them itself."""

    model: str | None = None
    """A folder, a Hugging Face hub name, a .gguf file, or package:NAME/FILE for a file that an installed Python
    package carries (by the name that is imported, or that pip shows); served: the name by which the server knows it.
    Code inside a model is never run."""

    model_revision: str | None = None
    """Branch, tag or commit of a hub model."""

    dtype: Literal["float32", "tf32", "bfloat16", "float16", "int8"] = "float32"
    """Precision of weights and arithmetic. bfloat16 is several times faster where the hardware has it and may
    change a few outputs. tf32, for GPUs from the A100 on: weights in float32, products by the first 10 bits of their
    fractions; not for vllm. int8, for T5 on CPUs that multiply bytes (AVX-512 VNNI): products alone are in integers,
    everything between them in float32."""

    max_prompt_tokens: int | None = None
    """Longest input, in tokens: for fid per passage with its question (null: 250), for ipa the whole prompt
    (null: 2048), for causal and vllm the whole prompt (null: what the model's context leaves, at most 4096), for served
    the whole prompt at 4 characters a token (null: nothing is cut)."""

    max_new_tokens: int | None = None
    """Longest output, in tokens (null: by dataset: 150 for dialogue, else 50)."""

    prompt: str | PromptConfig | None = None
    """t5 ("question: ... title: ... context: ..."), plain (instruction, worked examples, passages, question), chat (the
    same without examples, through the tokenizer's chat template), question_first (a chat with the passages last: all
    prompts of a question start alike, which servers' prefix caches use), a YAML file, or its keys: template, passage,
    separator, without_passages, system, examples, chat (null: t5 for fid and ipa, question_first for served and vllm,
    else plain). Part of the reader's fingerprint."""

    family: Literal["question", "claim", "dialogue"] | None = None
    """Which instruction and examples the plain and chat prompts have (null: by dataset)."""

    titles: bool = True
    """Show the reader the titles of passages. false: passages stand in its prompt as if they had none; responses with
    and without titles never stand in for each other. What the judge, the annotators and retrieval see stays."""

    num_examples: int = 2
    """plain prompt: how many worked examples stand before the question (0 to 2)."""

    stop_at_newline: bool = True
    """causal and vllm: an output ends at its first line break."""

    ask_to_abstain: bool = True
    """Where abstention is measured (usable, udcg, distracting): tell the reader to respond with NO-RESPONSE if no
    passage contains the answer. false: for a reader trained to do so untold (train.unanswerable_share)."""

    batch_size: int | None = None
    """Most requests in one batch (null: as many as fit and pay: on a CPU up to 128 for fid and ipa, 32 for causal; on a
    GPU 1024 and 512; vllm: its own choice). Not part of the reader's fingerprint."""

    batch_tokens: int | None = None
    """Most prompt tokens in one batch, padding included; one longer request goes alone (null: as many as fit, by the
    model's shape, into 80 % of the reader's share of the GPU's free memory, or of a quarter of the machine's; causal on
    a CPU at most 16384). A batch that does not fit even so is halved, and those after it are smaller."""

    simulated_latency_seconds: float = 0.0
    """echo only: how long one reading takes, for rehearsals."""

    def __post_init__(self) -> None:
        if isinstance(self.prompt, str) and self.prompt.endswith(FILE_ENDINGS):
            object.__setattr__(self, "prompt", read_prompt(self.prompt))
        known = not isinstance(self.prompt, str) or self.prompt in BUILT_IN
        require(known, f"reader.prompt must be one of {PROMPT_CHOICES}, got {self.prompt}")
        require(0 <= self.num_examples <= 2, f"reader.num_examples must be 0 to 2, got {self.num_examples}")
        for name in ("max_prompt_tokens", "max_new_tokens", "batch_size", "batch_tokens"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"reader.{name} must be at least 1, got {value}")
        require(
            self.simulated_latency_seconds >= 0,
            f"reader.simulated_latency_seconds must not be negative, got {self.simulated_latency_seconds}",
        )


@dataclass(frozen=True, kw_only=True)
class ReaderConfig(ServerKeys, EngineKeys, ReaderKeys):
    """The LLM of the RAG system."""

    def __post_init__(self) -> None:
        check_types(self)
        ReaderKeys.__post_init__(self)
        EngineKeys.__post_init__(self)
        ServerKeys.__post_init__(self)

    @property
    def is_chat(self) -> bool:
        """Whether the reader is a chat model: its prompt goes through a chat template, here or at a server."""
        if isinstance(self.prompt, PromptConfig):
            return self.prompt.chat and self.kind not in T5_KINDS
        is_first = self.kind in ("vllm", "function") or (self.kind == "served" and self.api == "chat")
        by_kind = "question_first" if is_first else "plain"
        return (self.prompt or by_kind) in CHAT_PROMPTS


def output_settings(config: Any) -> dict[str, Any]:
    """The keys of a reader's or judge's config that may change what it says.

    Those of `NEW_KEYS` are among them only where they differ from what was before: older tables stay valid.
    """
    settings = {key: value for key, value in asdict(config).items() if key not in SPEED_KEYS}
    return {key: value for key, value in settings.items() if key not in NEW_KEYS or value != NEW_KEYS[key]}

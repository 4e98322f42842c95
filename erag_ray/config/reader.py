"""The reader of a job: its model, its limits, its batches."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from erag_ray.config.check import require

SPEED_KEYS = ("batch_size", "batch_tokens", "delay_seconds")


@dataclass(frozen=True, kw_only=True)
class ReaderConfig:
    """The LLM of the RAG system."""

    PATHS: ClassVar = ("model",)

    kind: str = "fid"
    """fid (T5, Fusion-in-Decoder), ipa (T5, all passages in one prompt), causal (any decoder-only model),
    echo (a fake without weights), or package.module:Class."""

    model: str | None = None
    """A folder, a Hugging Face hub name, a .gguf file, or package:NAME/FILE for a file that an installed Python
    package carries (by the name that is imported, or that pip shows). Code inside a model is never run."""

    model_revision: str | None = None
    """Branch, tag or commit of a hub model."""

    dtype: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """Precision of weights and arithmetic. bfloat16 is several times faster where the hardware has it and may
    change a few outputs; so may int8, for T5 on CPUs that multiply bytes (AVX-512 VNNI): products alone are in
    integers, everything between them in float32."""

    max_prompt_tokens: int | None = None
    """Longest input, in tokens: for fid per passage with its question (null: 250), for ipa the whole prompt
    (null: 2048), for causal the whole prompt (null: what the model's context leaves, at most 4096)."""

    max_new_tokens: int | None = None
    """Longest output, in tokens (null: by dataset: 150 for dialogue, else 50)."""

    prompt: Literal["plain", "chat"] = "plain"
    """causal only: a plain few-shot prompt, or the tokenizer's chat template."""

    family: Literal["question", "claim", "dialogue"] | None = None
    """Which instruction and examples a causal reader sees (null: by dataset)."""

    score: str | None = None
    """Set by the job where documents are read for a score alone (score_only): which one."""

    titles: bool = True
    """Show the reader the titles of passages. false: passages stand in its prompt as if they had none; readings with
    and without titles never stand in for each other. What the judge, the annotators and retrieval see stays."""

    num_examples: int = 2
    """causal, plain prompt: how many worked examples stand before the question (0 to 2; a judge has 4)."""

    stop_at_newline: bool = True
    """causal only: an output ends at its first line break."""

    batch_size: int | None = None
    """Most requests in one batch (null: as many as fit and pay: on a CPU up to 128 for fid and ipa, 32 for causal; on a
    GPU 1024 and 512). Not part of the reader's fingerprint."""

    batch_tokens: int | None = None
    """Most prompt tokens in one batch, padding included; one longer request goes alone (null: as many as fit, by the
    model's shape, into 80 % of the reader's share of the GPU's free memory, or of a quarter of the machine's; causal on
    a CPU at most 16384). A batch that does not fit even so is halved, and those after it are smaller."""

    delay_seconds: float = 0.0
    """echo only: how long one reading takes, for rehearsals."""

    def __post_init__(self) -> None:
        most = 4 if self.kind.startswith("judge_") else 2
        require(
            0 <= self.num_examples <= most,
            f"reader.num_examples must be 0 to {most}, got {self.num_examples}",
        )
        for name in ("max_prompt_tokens", "max_new_tokens", "batch_size", "batch_tokens"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"reader.{name} must be at least 1, got {value}")
        require(
            self.delay_seconds >= 0, f"reader.delay_seconds must not be negative, got {self.delay_seconds}"
        )


def output_settings(config: Any) -> dict[str, Any]:
    """The keys of a reader's or judge's config that may change what it says.

    ``titles`` is among them only where they are hidden: tables that are older than this key stay valid.
    """
    settings = {key: value for key, value in asdict(config).items() if key not in SPEED_KEYS}
    return {key: value for key, value in settings.items() if key != "titles" or not value}

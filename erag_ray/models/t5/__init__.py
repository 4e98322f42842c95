"""T5 models: FiD (passages encoded separately, attended to together in the decoder) and IPA (all in one input)."""

from erag_ray.models.t5.encoder_cache import (
    EncoderCache,
    EncoderStates,
    Padded,
    arrange,
    encode_all,
    encode_prompts,
)
from erag_ray.models.t5.engine import GPU_MULTIPLE, GPU_PASS, KINDS, Engine, _Run
from erag_ray.models.t5.model import T5Model

__all__ = [
    "GPU_MULTIPLE",
    "GPU_PASS",
    "KINDS",
    "EncoderCache",
    "EncoderStates",
    "Engine",
    "Padded",
    "T5Model",
    "_Run",
    "arrange",
    "encode_all",
    "encode_prompts",
]

"""T5 readers: FiD (passages encoded alone, fused in the decoder) and IPA (passages in one input)."""

from erag_ray.models.t5.encoder_cache import Encoded, Fused, Padded, arrange, encode_all, fuse
from erag_ray.models.t5.engine import GPU_MULTIPLE, GPU_PASS, KINDS, Engine, _Run
from erag_ray.models.t5.model import T5Model

__all__ = [
    "GPU_MULTIPLE",
    "GPU_PASS",
    "KINDS",
    "Encoded",
    "Engine",
    "Fused",
    "Padded",
    "T5Model",
    "_Run",
    "arrange",
    "encode_all",
    "fuse",
]

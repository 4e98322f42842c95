"""Decoder-only models in vLLM's engine, which runs inside the actor."""

from erag_ray.models.vllm.engine import sampling

__all__ = ["sampling"]

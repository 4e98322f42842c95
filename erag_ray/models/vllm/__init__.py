"""Decoder-only readers by vLLM's engine inside the actor."""

from erag_ray.models.vllm.engine import sampling

__all__ = ["sampling"]

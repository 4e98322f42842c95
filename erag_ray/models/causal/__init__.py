"""Decoder-only models in transformers, with a prefix cache of keys and values."""

from erag_ray.models.causal.kv_cache import KeyValueCaches
from erag_ray.models.causal.model import CausalModel

__all__ = ["CausalModel", "KeyValueCaches"]

"""Keys of a config: their names, their types, and values of YAML, a command line or Python checked against them."""

from erag_ray.config.keys.names import (
    all_keys,
    config_in,
    field_hints,
    inner_hint,
    is_config,
    is_raw,
    split_key,
    unknown_key,
)
from erag_ray.config.keys.values import KeysError, Written, build, check_types

__all__ = [
    "KeysError",
    "Written",
    "all_keys",
    "build",
    "check_types",
    "config_in",
    "field_hints",
    "inner_hint",
    "is_config",
    "is_raw",
    "split_key",
    "unknown_key",
]

"""The command line: YAML files and options to a config, by the keys of its dataclass, and ``--help``."""

from erag_ray.config.command_line.keys import all_keys, keys_of, unknown_key
from erag_ray.config.command_line.parsing import expand, map_paths, parse

__all__ = ["all_keys", "expand", "keys_of", "map_paths", "parse", "unknown_key"]

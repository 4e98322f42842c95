"""The command line: YAML files and options to a config, by the keys of its dataclass, and ``--help``."""

from erag_ray.config.command_line.parsing import expand, map_paths, parse, paths_of
from erag_ray.config.command_line.yaml_files import Locations, read_yaml

__all__ = ["Locations", "expand", "map_paths", "parse", "paths_of", "read_yaml"]

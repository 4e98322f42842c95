"""The command line: YAML files and options to a config, by the keys of its dataclass, and ``--help``."""

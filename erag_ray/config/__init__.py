"""Configs of all jobs: frozen dataclasses, set by YAML files, the command line or Python (`values`).

The main job and its steps share `JobConfig`, so one YAML file serves `compare` and the single steps. Unknown keys
are errors. A new key is one field with a docstring; ``--help`` shows it. A new kind of job is one dataclass in a file
of its own here; its ``PATHS`` name the fields in which ``$NAME`` and ``~`` are replaced.
"""

from erag_ray.config.check import require
from erag_ray.config.command_line import expand, map_paths, parse, paths_of
from erag_ray.config.corpora import CorpusConfig
from erag_ray.config.job import CREDITS, KNOWN, MIN_READER_QUERIES, NEEDS_EXTENSION, ORDERS, JobConfig
from erag_ray.config.judge import JudgeConfig
from erag_ray.config.keys import build
from erag_ray.config.outside import OUTSIDE_KINDS
from erag_ray.config.prompt import BUILT_IN, PROMPT_CHOICES, ExampleConfig, PromptConfig, fields_of
from erag_ray.config.reader import KINDS, ReaderConfig, output_settings
from erag_ray.config.report import ReportConfig, ReportKeys
from erag_ray.config.retrieval import (
    RetrieveConfig,
    RetrieverConfig,
    SearchConfig,
    check_retrievers,
    is_file_name,
)

__all__ = [
    "BUILT_IN",
    "CREDITS",
    "KINDS",
    "KNOWN",
    "MIN_READER_QUERIES",
    "NEEDS_EXTENSION",
    "ORDERS",
    "OUTSIDE_KINDS",
    "PROMPT_CHOICES",
    "CorpusConfig",
    "ExampleConfig",
    "JobConfig",
    "JudgeConfig",
    "PromptConfig",
    "ReaderConfig",
    "ReportConfig",
    "ReportKeys",
    "RetrieveConfig",
    "RetrieverConfig",
    "SearchConfig",
    "build",
    "check_retrievers",
    "expand",
    "fields_of",
    "is_file_name",
    "map_paths",
    "output_settings",
    "parse",
    "paths_of",
    "require",
]

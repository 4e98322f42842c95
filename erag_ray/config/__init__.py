"""What a job is asked to do: frozen dataclasses <-> one YAML file and the command line (by jsonargparse).

The main job and its steps share `JobConfig`, so one YAML file serves `compare` and the single steps. Unknown keys
are errors. A new key is one field with a docstring; ``--help`` shows it. A new kind of job is one dataclass in a file
of its own here; its ``PATHS`` name the fields in which ``$NAME`` and ``~`` are replaced.
"""

from __future__ import annotations

from erag_ray.config.benchmark import BenchmarkConfig
from erag_ray.config.check import require
from erag_ray.config.job import JobConfig
from erag_ray.config.judge import JudgeConfig
from erag_ray.config.papers import PapersConfig
from erag_ray.config.parsing import expand, map_paths, parse
from erag_ray.config.prompt import ExampleConfig, PromptConfig
from erag_ray.config.reader import KINDS, ReaderConfig, output_settings
from erag_ray.config.report import ReportConfig, ReportKeys
from erag_ray.config.retrieval import (
    DualLabelsConfig,
    RetrieveConfig,
    RetrieverConfig,
    SearchConfig,
    check_retrievers,
)
from erag_ray.config.settle import SettleConfig
from erag_ray.config.training import ExamplesConfig, ScratchConfig, StageConfig, TrainConfig
from erag_ray.config.world import WorldConfig

__all__ = [
    "KINDS",
    "BenchmarkConfig",
    "DualLabelsConfig",
    "ExampleConfig",
    "ExamplesConfig",
    "JobConfig",
    "JudgeConfig",
    "PapersConfig",
    "PromptConfig",
    "ReaderConfig",
    "ReportConfig",
    "ReportKeys",
    "RetrieveConfig",
    "RetrieverConfig",
    "ScratchConfig",
    "SearchConfig",
    "SettleConfig",
    "StageConfig",
    "TrainConfig",
    "WorldConfig",
    "check_retrievers",
    "expand",
    "map_paths",
    "output_settings",
    "parse",
    "require",
]

"""Config settings that labels and end-to-end scores depend on, for the manifests of their tables."""

from __future__ import annotations

from collections.abc import Mapping

from erag_ray.annotators import request_specs, uses
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import output_settings
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.measures.scores import JUDGED
from erag_ray.prompts.kinds.answer_judge import ANSWER_JUDGE
from erag_ray.prompts.kinds.base import Case
from erag_ray.store.schemas import GIVEN

SAMPLE_KEYS = ("reader_queries", "sample_seed")
"""Settings of the sample of questions that the reader answers; absent where it answers all."""


def label_settings(config: JobConfig, datasets: Mapping[str, Dataset]) -> dict[str, object]:
    """Return the config settings that LABELS depend on, for these datasets."""
    roles = {spec.kind.role for spec in request_specs(config.annotators)}
    judge = {"judge": output_settings(config.judge)} if "judge" in roles else {}
    if "auxiliary_reader" in roles:
        judge["auxiliary_reader"] = output_settings(config.auxiliary_reader)
    return {
        "annotators": sorted(config.annotators),
        "reader": output_settings(config.reader) if config.asks_reader else {"kind": GIVEN.name},
        **({"threshold": config.threshold} if uses(config.annotators, "threshold") else {}),
        **_reader_sample(config),
        **judge,
        **_judged_settings(config, datasets),
    }


def end_to_end_settings(config: JobConfig, datasets: Mapping[str, Dataset]) -> dict[str, object]:
    """Return the config settings that UTILITY depends on, for these datasets."""
    return {
        "end_to_end_depths": config.depths,
        **({"repeats": config.repeats} if config.repeats > 1 else {}),
        "reader": output_settings(config.reader) if config.asks_reader else {"kind": GIVEN.name},
        **_reader_sample(config),
        **_judged_settings(config, datasets),
    }


def sample_settings(config: JobConfig) -> dict[str, object]:
    """Return the settings of the samples of questions that reader and judge are asked about; empty without samples."""
    count = config.judge.num_queries
    return {**_reader_sample(config), **({} if count is None else {"judged_queries": [count, config.seed]})}


def _reader_sample(config: JobConfig) -> dict[str, object]:
    """Return the settings of the sample of questions that the reader answers; empty where it answers all."""
    if config.reader_queries is None:
        return {}
    return dict(zip(SAMPLE_KEYS, (config.reader_queries, config.seed), strict=True))


def _judged_settings(config: JobConfig, datasets: Mapping[str, Dataset]) -> dict[str, object]:
    """Return the settings of judged scores: the judge, and the hash of its prompt for each dataset."""
    cases = {
        name: Case(dataset=dataset, reader=config.reader, judge=config.judge)
        for name, dataset in datasets.items()
        if dataset.score in JUDGED
    }
    forms = {name: ANSWER_JUDGE.build(case).fingerprint for name, case in cases.items()}
    return {"judge": output_settings(config.judge), "judged_by": forms} if forms else {}

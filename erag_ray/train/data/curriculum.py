"""Which questions each step reads, in which stage: a function of config, the questions' datasets and step alone."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from erag_ray.train.config import StageConfig, TrainConfig


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a step lies: the stage (from 0), the epoch in it (from 0), and its step in that epoch."""

    stage: int
    epoch: int
    step: int


class Curriculum:
    """The stages, one after the other, as numbered steps.

    Args:
        config: the training.
        datasets: each question's dataset, in the order of the rows.
    """

    def __init__(self, config: TrainConfig, datasets: Sequence[str]) -> None:
        self.config = config
        names = np.array(datasets, dtype=object)
        self._asked = [_asked(stage, names) for stage in config.curriculum]
        self._ends = list(itertools.accumulate(map(self._num_steps, range(len(config.curriculum)))))

    @property
    def num_steps(self) -> int:
        """Optimiser steps of all stages."""
        return self._ends[-1]

    def place(self, step: int) -> Place:
        """Where a step lies, ``0 <= step < num_steps``."""
        stage = next(index for index, end in enumerate(self._ends) if step < end)
        inside = step - (self._ends[stage - 1] if stage else 0)
        epoch, step = divmod(inside, self._steps_per_epoch(stage))
        return Place(stage=stage, epoch=epoch, step=step)

    def stage(self, number: int) -> StageConfig:
        """A stage of the config."""
        return self.config.curriculum[number]

    def places_in_epoch(self, place: Place) -> np.ndarray:
        """What a step asks, numbered over the epoch (a question of several copies has several numbers)."""
        size = self._batch_size(self.stage(place.stage))
        order = _order(self.config.seed, place.stage, place.epoch, len(self._asked[place.stage]))
        return order[place.step * size : (place.step + 1) * size]

    def rows(self, place: Place) -> np.ndarray:
        """The questions of a step, by their rows; the last step of an epoch may have fewer."""
        rows: np.ndarray = self._asked[place.stage][self.places_in_epoch(place)]
        return rows

    def learning_rate(self, step: int) -> float:
        """Linear warm-up over the first share of all steps, then a linear fall to 0 or a constant."""
        warmup = self.config.warmup_ratio * self.num_steps
        share = min(1.0, (step + 1) / warmup) if warmup else 1.0
        if self.config.schedule == "linear" and step >= warmup:
            share = (self.num_steps - step) / max(self.num_steps - warmup, 1.0)
        return self.config.learning_rate * min(share, 1.0)

    def _batch_size(self, stage: StageConfig) -> int:
        return stage.batch_size or self.config.batch_size

    def _steps_per_epoch(self, stage: int) -> int:
        return -(-len(self._asked[stage]) // self._batch_size(self.stage(stage)))

    def _num_steps(self, stage: int) -> int:
        config = self.stage(stage)
        return config.steps or (config.epochs or 0) * self._steps_per_epoch(stage)


def _asked(stage: StageConfig, datasets: np.ndarray) -> np.ndarray:
    """The rows of an epoch, each as often as the stage has it."""
    copies = np.ones(len(datasets), int)
    for name, number in stage.copies.items():
        copies[datasets == name] = number
    return np.repeat(np.arange(len(datasets)), copies)


@functools.lru_cache(maxsize=2)
def _order(seed: int, stage: int, epoch: int, num_questions: int) -> np.ndarray:
    return np.random.default_rng([seed, stage, epoch]).permutation(num_questions)

"""The questions and the stage of each step: a function of the config, the questions' datasets and the step."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from erag_ray.extras.train.config import TrainConfig


class Position(NamedTuple):
    """The position of a step: its stage, its epoch in the stage, and its step in the epoch, all from 0."""

    stage: int
    epoch: int
    step: int


class Curriculum:
    """The stages as one sequence of numbered steps; ``datasets`` are those of the questions, in the order of rows."""

    def __init__(self, config: TrainConfig, datasets: Sequence[str]) -> None:
        self.config = config
        self._batch_sizes = [stage.batch_size or config.batch_size for stage in config.curriculum]
        self._epoch_rows, self._epoch_steps, lengths = [], [], []
        for stage, batch_size in zip(config.curriculum, self._batch_sizes, strict=True):
            # of an epoch, each as often as the stage's copies
            rows = np.repeat(np.arange(len(datasets)), [stage.copies.get(name, 1) for name in datasets])
            self._epoch_rows.append(rows)
            self._epoch_steps.append(math.ceil(len(rows) / batch_size))
            lengths.append(stage.steps or (stage.epochs or 0) * self._epoch_steps[-1])
        self._ends = list(itertools.accumulate(lengths))

    @property
    def num_steps(self) -> int:
        """Optimiser steps of all stages."""
        return self._ends[-1]

    def position(self, step: int) -> Position:
        """Return the position of a step, ``0 <= step < num_steps``."""
        stage = next(index for index, end in enumerate(self._ends) if step < end)
        inside = step - (self._ends[stage - 1] if stage else 0)
        return Position(stage, *divmod(inside, self._epoch_steps[stage]))

    def numbers_in_epoch(self, position: Position) -> np.ndarray:
        """Return the questions of a step by their numbers in the epoch (each copy of a question has its own)."""
        size = self._batch_sizes[position.stage]
        num_questions = len(self._epoch_rows[position.stage])
        order = _order(self.config.seed, position.stage, position.epoch, num_questions)
        return order[position.step * size : (position.step + 1) * size]

    def rows(self, position: Position) -> np.ndarray:
        """Return the rows of a step's questions; the last step of an epoch may have fewer."""
        rows: np.ndarray = self._epoch_rows[position.stage][self.numbers_in_epoch(position)]
        return rows

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step: linear warm-up, then linear decay to 0 or a constant."""
        warmup = self.config.warmup_ratio * self.num_steps
        factor = min(1.0, (step + 1) / warmup) if warmup else 1.0
        if self.config.schedule == "linear" and step >= warmup:
            factor = (self.num_steps - step) / max(self.num_steps - warmup, 1.0)
        return self.config.learning_rate * min(factor, 1.0)


@functools.lru_cache(maxsize=2)
def _order(seed: int, stage: int, epoch: int, num_questions: int) -> np.ndarray:
    return np.random.default_rng([seed, stage, epoch]).permutation(num_questions)

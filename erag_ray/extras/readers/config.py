"""Config of a comparison with several readers."""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from erag_ray.config.job import JobConfig
from erag_ray.config.keys.values import require
from erag_ray.config.reader import ReaderConfig


class ReadersConfig(JobConfig):
    """A comparison with several readers; all other keys are those of erag-ray compare, but for reader."""

    EVERYDAY: ClassVar = {"Readers": ("readers",), **JobConfig.EVERYDAY}

    readers: dict[str, ReaderConfig] = field(default_factory=dict)
    """The readers, at least two: name -> the keys of reader. Each gets the same questions, lists and documents, and a
    report of its own in <out>/NAME."""

    def _check(self) -> None:
        require(len(self.readers) > 1, "readers: name at least two; erag-ray compare has one")
        require(self.reader == ReaderConfig(), "reader: name it among readers")
        require(not self.outputs, "outputs: systems are runs of erag-ray compare; leave it out")
        for name in self.readers:
            is_folder = re.fullmatch(r"\w[\w.-]*", name) is not None
            require(is_folder, f"readers: {name!r} becomes a folder of out: use letters, digits, _, - and .")
        for (one, reader), (other, same) in itertools.combinations(self.readers.items(), 2):
            require(reader != same, f"readers: {one} and {other} are one reader; leave one out")
        kinds = {name: reader.is_chat for name, reader in self.readers.items()}
        chat, plain = (
            ", ".join(name for name, is_chat in kinds.items() if is_chat is one) for one in (True, False)
        )
        text = f"score: set it, such as match; the default differs between chat models ({chat}) and others ({plain})"
        require(self.score is not None or not chat or not plain, text)

    @property
    def jobs(self) -> Mapping[str, JobConfig]:
        """The comparison of each reader, by its name, in a folder of ``out``."""
        keys = {one.name: getattr(self, one.name) for one in dataclasses.fields(JobConfig)}
        out = self.out.rstrip("/")
        return {
            name: JobConfig(**{**keys, "reader": reader, "out": f"{out}/{name}"})
            for name, reader in self.readers.items()
        }

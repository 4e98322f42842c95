"""A decoder-only model that leaves a file in a folder whenever it is loaded; named ``counted:Counted``."""

from __future__ import annotations

import pathlib
import uuid

from erag_ray.models.causal.model import CausalModel


class Counted(CausalModel):
    def load(self) -> None:
        pathlib.Path(self.config.options["marks"], uuid.uuid4().hex).touch()
        super().load()

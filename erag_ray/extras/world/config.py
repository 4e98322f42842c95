"""Configuration of the synthetic world: its size and difficulty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from erag_ray.config import require

PASSAGES_PER_DISTRICT = 64


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """A generated encyclopedia with questions of five tasks, in KILT's file formats."""

    PATHS: ClassVar = ("out",)

    out: str = "results/world"
    """Folder of the files."""

    seed: int = 0
    """Another seed is another world. No name of a dev question is in any train file, whatever the seed."""

    num_passages: int = 3000
    """About how many passages of 100 words the encyclopedia has (1,000 to 10,000,000); with nothing else changed,
    a larger world has the same share of namesakes, and more pages that look alike."""

    questions_per_district: float = 20.0
    """Questions of each task for each district (about 64 pages)."""

    max_questions: int | None = None
    """At most so many questions in a file, evenly over the districts (null: all)."""

    dev_every: int = 5
    """Every so-manieth district gives dev questions, the others train questions."""

    namesake_fraction: float = 0.35
    """Share of people who have the name of somebody else, with another occupation."""

    districts_per_surname: int = 4
    """In how many districts a surname is found."""

    variant_fraction: float = 0.9
    """Share of questions, and of mentions on other pages, that name people in other words than their own page: a
    short first name, a synonym of the occupation."""

    own_fraction: float = 0.7
    """Share of facts that the page of their subject tells; each of the others stands on some other page."""

    side_facts: float = 7.0
    """Further facts about others on each page, on average: what is told more than once, and distracts."""

    num_processes: int | None = None
    """Processes that make districts (null: one per core)."""

    def __post_init__(self) -> None:
        require(self.num_passages >= 1, f"num_passages must be at least 1, got {self.num_passages}")
        require(self.questions_per_district > 0, "questions_per_district must be above 0")
        require(self.dev_every >= 2, f"dev_every must be at least 2, got {self.dev_every}")
        require(self.districts_per_surname >= 1, "districts_per_surname must be at least 1")
        for name in ("namesake_fraction", "variant_fraction", "own_fraction"):
            require(0 <= getattr(self, name) <= 1, f"{name} must lie in 0..1, got {getattr(self, name)}")
        require(self.namesake_fraction < 1, "namesake_fraction must be below 1")
        require(0 <= self.side_facts <= 20, f"side_facts must lie in 0..20, got {self.side_facts}")

    @property
    def num_districts(self) -> int:
        """The number of districts for about ``num_passages`` passages."""
        return max(self.dev_every, round(self.num_passages / PASSAGES_PER_DISTRICT))

    def is_dev(self, district: int) -> bool:
        """Return whether a district has dev questions (else train questions)."""
        return district % self.dev_every == self.dev_every - 1

    def index_in_split(self, district: int) -> tuple[int, int]:
        """Return a district's index in its split (dev or train), and the size of the split."""
        dev_before, all_dev = district // self.dev_every, self.num_districts // self.dev_every
        if self.is_dev(district):
            return dev_before, all_dev
        return district - dev_before, self.num_districts - all_dev

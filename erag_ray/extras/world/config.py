"""Configuration of the synthetic world: its size and difficulty."""

from typing import Annotated

from pydantic import Field

from erag_ray.config.keys.values import Above0, AtLeast1, Keys, Number, Path, Share, Whole

PASSAGES_PER_DISTRICT = 64
DISTRICTS_PER_SURNAME = 4
"""In how many districts a surname is found."""


class WorldConfig(Keys):
    """A generated encyclopedia with questions of five tasks, in KILT's file formats."""

    out: Path = "results/world"
    """Folder of the files."""

    seed: Whole = 0
    """Another seed is another world. No name of a dev question is in any train file, whatever the seed."""

    num_passages: AtLeast1 = 3000
    """About how many passages of 100 words the encyclopedia has (1,000 to 10,000,000); with nothing else changed,
    a larger world has the same share of namesakes, and more pages that look alike."""

    questions_per_district: Above0 = 20.0
    """Questions of each task for each district (about 64 pages)."""

    max_questions: Whole | None = None
    """Most questions in a file, evenly over the districts (null: all)."""

    dev_every: Annotated[Whole, Field(ge=2)] = 5
    """Every so-manieth district gives dev questions, the others train questions."""

    namesake_fraction: Annotated[Number, Field(ge=0, lt=1)] = 0.35
    """Share of people who have the name of somebody else, with another occupation."""

    variant_fraction: Share = 0.9
    """Share of questions, and of mentions on other pages, that name people in other words than their own page: a
    short first name, a synonym of the occupation."""

    own_fraction: Share = 0.7
    """Share of facts that the page of their subject tells; each of the others is on some other page."""

    side_facts: Annotated[Number, Field(ge=0, le=20)] = 7.0
    """Further facts about others on each page, on average: what is told more than once, and distracts."""

    num_processes: Whole | None = None
    """Processes that make districts (null: one per core)."""

    @property
    def num_districts(self) -> int:
        """The number of districts for about ``num_passages`` passages."""
        return max(self.dev_every, round(self.num_passages / PASSAGES_PER_DISTRICT))

    def is_dev(self, district: int) -> bool:
        """Return whether a district has dev questions (else train questions)."""
        return district % self.dev_every == self.dev_every - 1

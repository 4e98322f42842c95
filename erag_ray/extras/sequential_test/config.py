"""Config of the sequential test: the best of two or more runs, with as few responses as possible."""

from dataclasses import field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from erag_ray.config.job import JobConfig
from erag_ray.config.keys.values import AtLeast1, NotNegative, Number, Text, require


class SettleConfig(JobConfig):
    """A comparison of runs that stops when it is settled; all other keys are those of erag-ray compare."""

    EVERYDAY: ClassVar = {
        "Comparison": (
            "compare",
            "measure",
            "cutoff",
            "auxiliary",
            "fraction",
            "num_looks",
            "equivalence_margin",
            "confidence",
        ),
        **JobConfig.EVERYDAY,
    }

    compare: list[Text] = field(default_factory=list)
    """Two or more runs (empty: all). With more than two, or several datasets, the errors of all pairs together stay
    within what ``confidence`` leaves (Holm)."""

    auxiliary: Text | None = None
    """An annotator whose labels of all documents narrow the intervals, so that fewer readings are needed; they need not
    be right. Any that needs no reading by the reader: contains_answer_dpr, provenance, llm_relevance, erag_auxiliary
    and gold_likelihood_auxiliary (both by auxiliary_reader), or package.module:name (null: none; erag_auxiliary with
    an auxiliary_reader)."""

    measure: Literal["P", "DCG"] = "P"
    """What is compared: P, or DCG (what nDCG is before it is divided by the ideal)."""

    cutoff: AtLeast1 | None = None
    """The rank at which it is taken (null: depth)."""

    fraction: Annotated[Number, Field(gt=0, le=1)] = 0.5
    """How many readings are expected if no look settles it: this fraction of the documents in the lists down to the
    cut-off. With a larger one the job continues from what a smaller one has read (a second chance to be wrong, of which
    the intervals do not know)."""

    num_looks: AtLeast1 = 5
    """How often one looks, each time after as many further questions; a reader's model is loaded for each, with
    num_readers: 0 once for all."""

    equivalence_margin: NotNegative = 0.02
    """A difference that is known to within this, above or below, is settled too; in the measure's own units."""

    boundary: Literal["even", "late", "mixture"] = "even"
    """How the looks share the errors that ``confidence`` leaves: even stops earliest, late keeps them for the end and
    has the narrowest interval there, mixture would be valid at every single question."""

    def _check(self) -> None:
        require(self.rank <= self.depth, f"cutoff: {self.rank} is not within 1..depth={self.depth}")

    def _check_auxiliary(self) -> None:
        text = "reader_queries: this job samples documents (fraction), not questions; leave it out"
        require(self.reader_queries is None, text)

    @property
    def auxiliary_annotator(self) -> str | None:
        """The annotator of the auxiliary labels (None: there are none)."""
        return self.auxiliary or ("erag_auxiliary" if self.auxiliary_reader else None)

    @property
    def rank(self) -> int:
        """The rank at which the measure is taken."""
        return self.depth if self.cutoff is None else self.cutoff

"""Config of the export: which labels leave, and how training data are made of them."""

from typing import Annotated

from pydantic import Field

from erag_ray.config.keys.values import Above0, AtLeast0, AtLeast1, Flag, Keys, Number, Path, Text, require


class ExportConfig(Keys):
    """Labels of a finished job as a dataset, and as training data for retrievers."""

    job: Path = "results/job"
    """Folder of a finished job (erag-ray compare or erag-ray annotate)."""

    annotator: Text = "erag"
    """The annotator whose labels make the training data. The dataset of labels has those of all annotators."""

    threshold: Above0 | None = None
    """A document with a label of at least this is a positive (null: the job's threshold, else 0.5)."""

    num_negatives: AtLeast1 = 1
    """Negatives of each row: documents that were retrieved for the question and have label 0 or do harm, harmful ones
    first, then by rank. Questions with fewer are left out and counted."""

    harmful_only: Flag = False
    """Only documents with a gain below 0 are negatives. Needs a job with the annotator gain."""

    validation_fraction: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    """Share of the questions in the split validation."""

    test_fraction: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    """Share of the questions in the split test; the rest is train. A question's split depends only on its text and
    the seed, so it is the same in every export."""

    seed: AtLeast0 = 0
    """Seed of the splits and of the order of the rows."""

    license: Text = "unknown"
    """Licence of questions and passages, for the card: an identifier of the Hugging Face Hub, such as cc-by-sa-4.0."""

    out: Path = "results/export"
    """Folder of README.md (the card), labels/ and training/; not the out of another job."""

    progress: Flag = True
    """Show a progress bar."""

    def _check(self) -> None:
        held_out = self.validation_fraction + self.test_fraction
        require(
            held_out < 1, f"validation_fraction and test_fraction must leave a rest, got {held_out} together"
        )

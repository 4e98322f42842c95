"""Write labels and training data of a finished job as a dataset folder with a card."""

from collections.abc import Iterable, Mapping

import polars as pl

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.extras.label_export.card import card
from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.extras.label_export.rows import (
    SPLITS,
    LabelledJob,
    TrainingData,
    label_rows,
    training_rows,
    with_split,
)
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import CORPUS, DOCUMENT_OUTPUTS, LABELS, QUERIES, RUNS
from erag_ray.store.stages.stage import stale
from erag_ray.store.tables import MANIFEST, TableStore
from erag_ray.support.errors import InputError
from erag_ray.support.logs import say
from erag_ray.support.ownership import UNFINISHED
from erag_ray.support.progress import stage_progress

CARD = "README.md"
LABELS_FOLDER, TRAINING_FOLDER = "labels", "training"
ROWS_PER_FILE = 500_000
NEEDED = (QUERIES, CORPUS, RUNS, LABELS, DOCUMENT_OUTPUTS)
THRESHOLD = 0.5
MARK = b"tags:\n- erag\n"
"""A line of every card of an export."""


def export(config: ExportConfig) -> TrainingData:
    """Write the dataset folder and return its training data. The card is written last: without it nothing is complete.

    Raises:
        InputError: the job is not finished or stale, has no labels for training data, or ``out`` is a job's folder.
    """
    folder = Folder(config.out)
    _check_out(folder)
    with stage_progress("loading labels", show=config.progress):
        job = load_job(config.job, config.threshold)
        training = training_rows(job, config)
    # of an earlier export
    folder.delete(CARD)
    for below in (LABELS_FOLDER, TRAINING_FOLDER):
        for name in folder.names(below, suffix=".parquet"):
            if name.startswith(SPLITS):
                folder.delete(below, name)
    with stage_progress("writing the dataset", show=config.progress):
        queries = with_split(job.queries, config)
        labels = {split: label_rows(job, queries.filter(split=split), ROWS_PER_FILE) for split in SPLITS}
        by_split = {split: training.rows.filter(split=split).drop("split") for split in SPLITS}
        rows = {split: of_split.iter_slices(ROWS_PER_FILE) for split, of_split in by_split.items()}
        files = {
            LABELS_FOLDER: _write(folder, LABELS_FOLDER, labels),
            TRAINING_FOLDER: _write(folder, TRAINING_FOLDER, rows),
        }
        text = card(job, training, queries, files, config)
        folder.write_bytes(text.encode(), CARD)
        for parts in ((UNFINISHED,), (LABELS_FOLDER, UNFINISHED), (TRAINING_FOLDER, UNFINISHED)):
            folder.prune(*parts)
    _tell(folder, job, training)
    return training


def load_job(folder: str, threshold: float | None = None) -> LabelledJob:
    """Load a job from its ``out``, with a threshold of useful labels (None: the job's, else `THRESHOLD`).

    Raises:
        InputError: a table is missing, damaged, or was computed from other versions of its sources; or there are no
            labels.
    """
    store = TableStore(folder)
    if missing := [schema.name for schema in NEEDED if not store.is_sealed(schema)]:
        text = f"{folder}: no sealed {', '.join(missing)}; run erag-ray compare or erag-ray annotate to the end first"
        raise InputError([f"job: {text}"])
    for schema in (LABELS, DOCUMENT_OUTPUTS):
        if others := stale(store.manifest(schema), store):
            text = f"{schema.name} were computed from an earlier version of {', '.join(others)}"
            raise InputError([f"job: {folder}: {text}; run erag-ray compare or erag-ray annotate again"])
    tables = {schema.name: store.read(schema) for schema in NEEDED}
    if tables["labels"].is_empty():
        raise InputError(
            [f"job: {folder}: the table labels is empty. Run erag-ray compare with other annotators"]
        )
    if threshold is None and store.is_sealed(PER_QUERY):
        threshold = store.manifest(PER_QUERY)["config"].get("threshold")
    datasets = store.manifest(QUERIES)["config"].get("datasets", {})
    return LabelledJob(
        **tables,
        manifest=store.manifest(LABELS),
        languages=tuple(sorted({properties["language"] for properties in datasets.values()})),
        threshold=THRESHOLD if threshold is None else threshold,
    )


def _check_out(folder: Folder) -> None:
    """Refuse a folder in which the export would overwrite what is not an export."""
    if folder.exists(LABELS_FOLDER, MANIFEST):
        text = f"{folder.root} is the folder of a job, whose table labels would be overwritten"
        raise InputError([f"out: {text}. Choose another"])
    if folder.exists(CARD) and MARK not in folder.read_bytes(CARD):
        text = f"{folder.at(CARD)} is not the card of an export and would be overwritten"
        raise InputError([f"out: {text}. Choose another folder"])


def _write(folder: Folder, below: str, parts: Mapping[str, Iterable[pl.DataFrame]]) -> dict[str, list[str]]:
    """Write the parts of each split as Parquet files; return the paths by split, of splits with rows."""
    paths: dict[str, list[str]] = {}
    for split, of_split in parts.items():
        for number, part in enumerate(part for part in of_split if part.height):
            name = f"{split}-{number:05}.parquet"
            folder.write_parquet(part.to_arrow(), below, name)
            paths.setdefault(split, []).append(f"{below}/{name}")
    return paths


def _tell(folder: Folder, job: LabelledJob, training: TrainingData) -> None:
    left_out = training.num_without_positive + training.num_with_few_negatives
    say(
        f"labels: {job.labels.height:,}; training rows: {training.rows.height:,}; questions left out of the training "
        f"data: {left_out:,} ({training.num_without_positive:,} without a useful document, "
        f"{training.num_with_few_negatives:,} with too few negatives)",
        f"dataset and card: {folder.address.rstrip('/')}",
    )

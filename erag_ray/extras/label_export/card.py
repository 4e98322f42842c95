"""The card of an export, README.md: YAML front matter for `datasets.load_dataset`, and what a reader must know."""

import os
from collections.abc import Mapping, Sequence

import polars as pl
import yaml

from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.extras.label_export.rows import MEANING, SPLITS, LabelledJob, TrainingData
from erag_ray.store.tables import content_digest

SIZES = {
    1_000: "n<1K",
    10_000: "1K<n<10K",
    100_000: "10K<n<100K",
    1_000_000: "100K<n<1M",
    10_000_000: "1M<n<10M",
}
"""Number of rows -> category of the Hugging Face Hub for fewer rows than that."""
LARGEST = "n>10M"
PUBLIC = ("kind", "model", "model_revision", "revision", "dtype")
"""Settings of the reader that the card names: others may hold addresses of machines."""
Files = Mapping[str, Mapping[str, Sequence[str]]]
"""Name of a configuration, labels or training -> split -> paths of its files."""


def card(
    job: LabelledJob, training: TrainingData, splits: pl.DataFrame, files: Files, config: ExportConfig
) -> str:
    """Return the text of the card; ``splits`` are QUERIES with the column ``split``, ``files`` those of the export."""
    parts = [
        f"---\n{yaml.safe_dump(_front_matter(job, files, config), sort_keys=False, allow_unicode=True)}---",
        "# Usefulness of documents to a reader",
        _summary(job),
        "## Labels",
        _markdown(
            ("annotator", "labels", "not judged", f"at least {job.threshold:g}", "mean"), _by_annotator(job)
        ),
        _markdown(("split", "questions", "labels", "training rows"), _by_split(job, training, splits)),
        _markdown(("column", "content"), [(f"`{name}`", text) for name, text in MEANING.items()]),
        "## Training data",
        _of_training(job, training, config),
        "## How it was made",
        _origin(job, config),
        "## Licence",
        f"Questions, answers and documents keep the licence of their sources (`{config.license}` was set for this "
        "card; check it before you publish). Outputs were written by the reader's model, whose terms may limit what "
        "they are used for. Texts may name persons.",
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(job: LabelledJob, files: Files, config: ExportConfig) -> dict[str, object]:
    num_rows = job.labels.height
    configs = [
        {
            "config_name": name,
            "data_files": [{"split": split, "path": list(paths)} for split, paths in by_split.items()],
            **({"default": True} if name == "labels" else {}),
        }
        for name, by_split in files.items()
    ]
    return {
        "license": config.license,
        "pretty_name": "Usefulness of documents to a reader",
        **({"language": list(job.languages)} if job.languages else {}),
        "task_categories": ["text-retrieval", "text-ranking"],
        "tags": ["erag", "retrieval-augmented-generation", "hard-negatives"],
        "size_categories": [next((name for size, name in SIZES.items() if num_rows < size), LARGEST)],
        "configs": configs,
    }


def _summary(job: LabelledJob) -> str:
    pairs = job.labels.select("query_id", "doc_id").unique()
    return (
        f"{job.labels.height:,} labels of {pairs.height:,} pairs of a question and a retrieved document: "
        f"{pairs['query_id'].n_unique():,} questions, {pairs['doc_id'].n_unique():,} documents, "
        f"{job.runs['run_id'].n_unique():,} retrievers. A label by the annotator `erag` is the score of the reader's "
        "output with this document alone (Salemi & Zamani, SIGIR 2024)."
    )


def _by_annotator(job: LabelledJob) -> list[tuple[str, ...]]:
    counts = job.labels.group_by("annotator").agg(
        labels=pl.len(),
        missing=pl.col("label").null_count(),
        useful=(pl.col("label") >= job.threshold).sum(),
        mean=pl.col("label").mean(),
    )
    return [
        (name, f"{labels:,}", f"{missing:,}", f"{useful:,}", "" if mean is None else f"{mean:.3f}")
        for name, labels, missing, useful, mean in counts.sort("annotator").iter_rows()
    ]


def _by_split(job: LabelledJob, training: TrainingData, splits: pl.DataFrame) -> list[tuple[str, ...]]:
    counts = {
        "questions": splits.group_by("split").len(),
        "labels": splits.join(job.labels.select("query_id"), on="query_id").group_by("split").len(),
        "rows": training.rows.group_by("split").len(),
    }
    by_split = {name: dict(frame.iter_rows()) for name, frame in counts.items()}
    names = [name for name in SPLITS if name in by_split["questions"]]
    return [(name, *(f"{of.get(name, 0):,}" for of in by_split.values())) for name in names]


def _of_training(job: LabelledJob, training: TrainingData, config: ExportConfig) -> str:
    which = "documents that do harm" if config.harmful_only else "documents that are useless or do harm"
    return (
        f"{training.rows.height:,} rows of `anchor`, `positive`, {', '.join(f'`{n}`' for n in training.negatives)}, as "
        "sentence-transformers takes them. An anchor is a question, a positive a document with a label of at least "
        f"{job.threshold:g} by `{config.annotator}` (title and text), a negative one of the {which}, retrieved for it, "
        f"harmful ones first, then by rank. {training.num_harmful:,} negatives do harm (a gain below 0). Left "
        f"out: {training.num_without_positive:,} questions without a useful document, "
        f"{training.num_with_few_negatives:,} with fewer than {config.num_negatives} negatives. No question is in two "
        "splits; a document may be."
    )


def _origin(job: LabelledJob, config: ExportConfig) -> str:
    made_with, manifest = job.manifest["config"], job.manifest
    version = manifest.get("packages", {}).get("erag-ray") or manifest.get("commit") or "unknown"
    reader = made_with.get("reader", {})
    settings = ", ".join(f"{name} `{_public(reader[name])}`" for name in PUBLIC if reader.get(name))
    return (
        f"By `erag-ray export` of erag_ray (labels by version {version}, digest `{content_digest(manifest)}`), "
        f"annotator `{config.annotator}`, threshold {job.threshold:g}, seed {config.seed}. Reader: "
        f"{settings or 'none'}. The labels hold for this reader: another may be helped by other documents."
    )


def _public(setting: object) -> str:
    """Return a setting as text, without the folders of a path of this machine."""
    return os.path.basename(str(setting).rstrip("/")) if os.path.isabs(str(setting)) else str(setting)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    # a text must not end a cell or a line
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)

"""Which labels agree best with the end-to-end score, in worlds of different settings?

    python notebooks/label_order.py [OUT] [--KEY VALUE ...]

For each setting: a world, two runs, a comparison with the reader of jobs/demo/reader, and for each task and run the
differences tau(erag) - tau(contains_answer_dpr), tau(erag) - tau(provenance) and tau(contains_answer_dpr) -
tau(provenance) of P@k with paired 95 % bootstrap intervals over questions. Writes OUT/label_order.md. Further keys go
to jobs/compare.py (--num_readers 2 --cpus_per_reader 1).
"""

import itertools
import pathlib
import re
import subprocess
import sys

import numpy as np
import polars as pl

from erag_ray.analyses.parts.formats import number, with_interval
from erag_ray.config.retrieval import RetrieveConfig, RetrieverConfig
from erag_ray.extras.world.config import WorldConfig
from erag_ray.extras.world.files import KNOWLEDGE_SOURCE, file_name, write_world
from erag_ray.extras.world.tasks import TASKS
from erag_ray.measures.agreement import agree, difference_of, resample_weights, resampled_agreement
from erag_ray.retrieve.stage import retrieve

DEPTHS = [10, 50]
SETTINGS: dict[str, tuple[dict[str, object], list[int]]] = {
    "as shipped": ({}, DEPTHS),
    "less in other words": ({"side_facts": 4.0, "variant_fraction": 0.5}, DEPTHS[:1]),
    "told once, on the own page": ({"side_facts": 0.0, "own_fraction": 1.0}, DEPTHS[:1]),
    "no name-sakes": ({"namesake_fraction": 0.0}, DEPTHS[:1]),
}
"""What each world changes, and to which depths its lists are read (deep lists are most of the time)."""
ANNOTATORS = ("erag", "contains_answer_dpr", "provenance")
NUM_QUESTIONS = 200
TAU = "kendall_tau_b"


def main(out: pathlib.Path, arguments: list[str]) -> None:
    taus, differences = (
        "tau erag | contains | provenance",
        "erag - contains | erag - provenance | contains - provenance",
    )
    lines = [f"| setting | task | run | k | {taus} | {differences} |", "|---" * 10 + "|"]
    for name, (changes, depths) in SETTINGS.items():
        folder = out / re.sub(r"\W+", "_", name)
        compare(folder, changes, depths, arguments)
        lines += [f"| {name} | {line}" for line in table(folder / "compare")]
        (out / "label_order.md").write_text("\n".join(lines) + "\n")


def compare(out: pathlib.Path, changes: dict[str, object], depths: list[int], more: list[str]) -> None:
    """World, runs and comparison of one setting; what is there already is not made again."""
    world = WorldConfig(out=str(out / "world"), seed=2, max_questions=NUM_QUESTIONS, **changes)  # type: ignore[arg-type]
    write_world(world)
    queries = [str(out / "world" / file_name(task, dev=True)) for task in TASKS]
    source = str(out / "world" / KNOWLEDGE_SOURCE)
    config = RetrieveConfig(
        queries=queries,
        knowledge_source=[source],
        retrievers={
            "bm25": RetrieverConfig(kind="bm25"),
            "bm25_lead": RetrieverConfig(kind="bm25", searches="title_and_first_sentence"),
        },
        out=str(out / "retrieval"),
    )
    runs = retrieve(config)
    arguments = ["--queries", str(queries), "--passages", str([str(out / "retrieval" / "corpus")])]
    arguments += [part for run in runs for part in (f"--runs.{run.run_id}", run.path)]
    arguments += ["--out", str(out / "compare"), "--cache_dir", str(out.parent / "store")]
    arguments += ["--depth", str(max(depths)), "--end_to_end_depths", str(depths), "--cutoffs", str(depths)]
    command = [sys.executable, "jobs/compare.py", "--config", "jobs/demo/compare.yaml", *arguments, *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def table(out: pathlib.Path) -> list[str]:
    """A line for each task, run and depth."""
    measured = pl.read_parquet(out / "per_query" / "*.parquet").filter(
        pl.col("measure") == "P", pl.col("cutoff") == pl.col("depth"), pl.col("ideal") != "pool"
    )
    used = pl.read_parquet(out / "utility" / "*.parquet")
    queries = pl.read_parquet(out / "queries" / "*.parquet").select("query_id", "dataset")
    lines = []
    cells = itertools.product(TASKS, sorted(measured["run_id"].unique()), sorted(measured["depth"].unique()))
    for task, run, depth in cells:
        own = queries.filter(dataset=task).select("query_id").sort("query_id")
        utility = column(own, used.filter(run_id=run, depth=depth))
        cell = measured.filter(run_id=run, depth=depth)
        columns = {annotator: column(own, cell.filter(annotator=annotator)) for annotator in ANNOTATORS}
        lines.append(f"{task} | {run} | {depth} | {figures(columns, utility)} |")
    return lines


def column(queries: pl.DataFrame, values: pl.DataFrame) -> np.ndarray:
    """The values of all queries in their order, NaN where there is none."""
    joined = queries.join(values, on="query_id", how="left", maintain_order="left")
    return joined["value"].cast(pl.Float64).fill_null(np.nan).to_numpy()


def figures(columns: dict[str, np.ndarray], utility: np.ndarray) -> str:
    """The three taus and the three differences; a dash where an annotator does not apply or a column is constant."""
    weights = resample_weights(len(utility), 2000)
    applied = {name: column for name, column in columns.items() if not np.isnan(column).any()}
    taus = [agree(applied[name], utility, TAU).value if name in applied else None for name in ANNOTATORS]
    resampled = {name: resampled_agreement(column, utility, TAU, weights) for name, column in applied.items()}
    differences = [
        difference_of(resampled.get(first), resampled.get(second))[:3]
        for first, second in itertools.combinations(ANNOTATORS, 2)
    ]
    return " | ".join([*map(number, taus), *(with_interval(*found) for found in differences)])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "results/label_order"), sys.argv[2:])

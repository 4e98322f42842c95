"""The job that makes runs: questions, passages or pages, the retrievers to run, and where they run."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields
from typing import ClassVar, Literal

from erag_ray.config.check import require
from erag_ray.config.keys import check_types
from erag_ray.config.outside import OUTSIDE_KEYS, OutsideKeys

MAX_NAME_BYTES = 150
QUESTION_FIELDS = ("question", "answers", "answers_all", "id")
# what each kind looks at; code from outside looks at nothing
KEYS = {
    "bm25": {"searches", "analyser", "k1", "b", "method"},
    "lucene": {"searches", "k1", "b"},
    "dense": {"searches", "model", "model_revision", "preset", "max_tokens", "dtype", "batch_size"},
    "rrf": {"of", "candidates", "rrf_k"},
    "rerank": {
        "searches",
        "model",
        "model_revision",
        "max_tokens",
        "dtype",
        "batch_size",
        "of",
        "by",
        "candidates",
    },
    "random": {"seed"},
    **OUTSIDE_KEYS,
}


@dataclass(frozen=True, kw_only=True)
class RetrieverConfig(OutsideKeys):
    """One way to rank passages."""

    PATHS: ClassVar = ("model",)

    kind: str
    """bm25, lucene (BM25 by Lucene itself, with the extra of that name), dense (an encoder and exact search), rrf
    (reciprocal rank fusion of other runs), rerank (another run, scored again), random (the floor), langchain,
    llama_index, haystack or python (an object or a function of yours), http (a service), or package.module:name."""

    searches: Literal["title_and_text", "title_and_first_sentence"] = "title_and_text"
    """What of a passage is searched. bm25, lucene, dense, rerank."""

    analyser: str = "english"
    """bm25: how a text becomes words: english (stop words, Snowball's stemmer), korean (morphemes by Kiwi), or
    package.module:name."""

    k1: float = 0.9
    """bm25, lucene: saturation by term frequency."""

    b: float = 0.4
    """bm25, lucene: how far long passages count less, 0 to 1."""

    method: Literal["lucene", "robertson", "atire"] = "lucene"
    """bm25: the variant, as the package bm25s calls it."""

    model: str | None = None
    """dense, rerank: a folder, a Hugging Face hub name, or package:NAME/FOLDER for one that an installed Python
    package carries. Code inside a model is never run."""

    model_revision: str | None = None
    """dense, rerank: branch, tag or commit of a hub model."""

    preset: str | None = None
    """dense: how the encoder is used: contriever, e5, bge-m3, sentence-transformers (as the model's own files say);
    null: by the model's name."""

    max_tokens: int | None = None
    """dense, rerank: longest input in tokens (null: the preset's or the model's own)."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """dense, rerank: precision of weights and arithmetic of the model."""

    batch_size: int | None = None
    """dense, rerank: texts or pairs in one batch (null: 128 on a GPU, 16 on a CPU, whose cache holds no more)."""

    of: list[str] = field(default_factory=list)
    """rrf: the runs that are fused; rerank: the one run that is scored again. They stand before this one."""

    by: str | None = None
    """rerank: the dense retriever before this one whose scores are used, instead of a model (a cross-encoder)."""

    candidates: int | None = None
    """rrf, rerank: how far down the other runs are looked at (null: to the end)."""

    rrf_k: int = 60
    """rrf: a document's score is the sum of 1 / (rrf_k + rank) over the runs (Cormack et al., SIGIR 2009)."""

    seed: int = 0
    """random: seed of the draw."""

    def __post_init__(self) -> None:
        check_types(self)
        require(bool(self.kind.strip()), "retrievers: kind is blank")
        used = KEYS.get(self.kind, set())
        for key in fields(self):
            value = getattr(self, key.name)
            default = key.default_factory() if key.default_factory is not MISSING else key.default
            plain = key.name in ("kind", *used) or value == default
            require(plain, f"{key.name} is given, but {self.kind} does not look at it")
        require(0 <= self.k1 < math.inf, f"k1 must not be negative or endless, got {self.k1}")
        require(0 <= self.b <= 1, f"b must lie in 0..1, got {self.b}")
        require(self.rrf_k >= 1, f"rrf_k must be at least 1, got {self.rrf_k}")
        for name in ("candidates", "max_tokens", "batch_size"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} must be at least 1, got {value}")
        require(len(set(self.of)) == len(self.of), f"of: {', '.join(self.of)}: a run comes twice")
        require(self.kind != "rrf" or len(self.of) >= 2, "rrf: of: name at least two runs")
        require(self.kind != "rerank" or len(self.of) == 1, "rerank: of: name the one run to score again")
        scored = (self.model is None) != (self.by is None)
        require(self.kind != "rerank" or scored, "rerank: give a model or by, one of the two")
        require(self.kind != "dense" or self.model is not None, "dense: needs a model")
        self.check_outside(self.kind)

    @property
    def others(self) -> list[str]:
        """The retrievers that this one needs."""
        return [*self.of, *([self.by] if self.by else [])]


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Where indexes are made and searched."""

    num_actors: int = 0
    """Ray actors that index, encode and search (0: this process does it, with all its cores, without Ray)."""

    cpus_per_actor: int = 1
    """CPU cores of each actor."""

    gpus_per_actor: float = 0.0
    """GPUs of each actor; the index then lies on the GPU where the faiss-gpu package is installed."""

    passages_per_shard: int = 1_000_000
    """Passages in one part of an index: what one actor holds at a time. The lists do not depend on it."""

    keep_index: bool = True
    """Leave the index in <out>/indexes: other questions then need no new one."""

    ray_address: str | None = None
    """Cluster to run on (null: the one that submitted the job, else a local Ray for this job alone)."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("num_actors", "cpus_per_actor", "gpus_per_actor"):
            value = getattr(self, name)
            require(value >= 0, f"search.{name} must not be negative, got {value}")
        shard = self.passages_per_shard
        require(shard >= 1, f"search.passages_per_shard must be at least 1, got {shard}")


@dataclass(frozen=True, kw_only=True)
class RetrieveConfig:
    """Questions, passages or the pages to make them from, and the retrievers to run."""

    PATHS: ClassVar = ("queries", "qrels", "triviaqa_questions", "passages", "knowledge_source", "out")
    EVERYDAY: ClassVar = {
        "Inputs": ("queries", "passages", "knowledge_source", "splitter", "num_queries"),
        "Retrieval": ("retrievers", "depth", "search.num_actors", "search.gpus_per_actor"),
        "Output": ("out",),
    }

    queries: list[str] = field(default_factory=list)
    """Question files: JSON Lines (.gz too) of KILT tasks, of BEIR queries with answers in their metadata, or of
    {"question", "answers", "id"}, also as a JSON list, Parquet or .tsv; or the JSON of SQuAD or KLUE-MRC.
    hf:NAME:SPLIT, hf:NAME:CONFIG:SPLIT and hf:/folder:SPLIT are read by the library datasets."""

    query_format: str = "auto"
    """Form of the question files: auto (by the fields of each record), kilt, beir, plain, squad, klue, or
    package.module:name."""

    question_fields: dict[str, str] = field(default_factory=dict)
    """Fields of the records under other names: question, answers, answers_all or id -> where it stands ({question: q,
    answers: a.text, id: key}). Dots go down into the record. All records are then of the plain format."""

    qrels: list[str] = field(default_factory=list)
    """TREC qrels (query 0 document grade), BEIR's (TSV) or MTEB's (JSON Lines, Parquet or hf:NAME:SPLIT with
    query-id, corpus-id and score, also as qid, docid and rel): the gold passages of questions whose file names none.
    BEIR's questions without a line in them are left out."""

    triviaqa_questions: list[str] = field(default_factory=list)
    """TriviaQA's original JSON files: KILT's TriviaQA files hold ids without questions."""

    dataset: str | None = None
    """Name of the dataset, for files that do not say it."""

    filters: list[str] = field(default_factory=list)
    """Only questions whose record holds these values: path=value, or dataset:path=value for one dataset alone."""

    num_queries: int | None = None
    """Search a sample of this many questions, the one that jobs/compare.py draws with the same seed (null: all)."""

    seed: int = 0
    """Seed of the sample of questions."""

    passages: list[str] = field(default_factory=list)
    """Passage files: JSONL (.gz) or Parquet with doc_id, page_id, title, text; BEIR corpus.jsonl; DPR's .tsv; or a
    corpus folder that this job has made."""

    knowledge_source: list[str] = field(default_factory=list)
    """Instead of passages: pages, split into <out>/corpus. KILT's knowledge source or WikiExtractor's JSON Lines (.gz
    too), Parquet with title and text, a folder of TITLE.txt, or the contexts of the JSON of SQuAD or KLUE-MRC."""

    splitter: str = "whitespace100"
    """How pages become passages: whitespace100 (windows of 100 words; any other number too), recursive_characters
    (300 characters, by LangChain), or package.module:name."""

    retrievers: dict[str, RetrieverConfig] = field(default_factory=dict)
    """The runs to make: name -> how; --retrievers.help shows the keys. In this order: what fuses or reranks others
    stands after them."""

    depth: int = 50
    """Length of the lists."""

    search: SearchConfig = field(default_factory=SearchConfig)
    """Where indexes are made and searched."""

    out: str = "results/retrieval"
    """Folder of <out>/runs/NAME.parquet, <out>/indexes and, from pages, <out>/corpus; not the out of another job."""

    progress: bool = True
    """Show a progress bar."""

    def __post_init__(self) -> None:
        check_types(self)
        check_question_fields(self.question_fields, self.query_format)
        require(self.depth >= 1, f"depth must be at least 1, got {self.depth}")
        count = self.num_queries
        require(count is None or count >= 1, f"num_queries must be at least 1, got {count}")
        require(self.seed >= 0, f"seed must not be negative, got {self.seed}")
        require(
            not (self.passages and self.knowledge_source),
            "passages: give either passages or a knowledge_source, not both",
        )
        require(bool(self.retrievers), "retrievers: name at least one")
        check_retrievers(self.retrievers, self.depth)

    @property
    def corpus(self) -> str:
        """The folder of the passages that are made of the knowledge source."""
        return "/".join([self.out.rstrip("/"), "corpus"])

    def run(self, name: str) -> str:
        """The file of a run."""
        return "/".join([self.out.rstrip("/"), "runs", f"{name}.parquet"])


def check_question_fields(fields: dict[str, str], query_format: str) -> None:
    """Check that the fields are those of the plain format, and that no other format is set.

    Raises:
        ValueError: they are not.
    """
    for name, path in fields.items():
        require(name in QUESTION_FIELDS, f"question_fields: {name} is none of {', '.join(QUESTION_FIELDS)}")
        require(all(path.split(".")), f"question_fields.{name}: {path!r} is no path")
    is_plain = query_format in ("auto", "plain")
    require(
        is_plain or not fields, f"question_fields: only with query_format auto or plain, not {query_format}"
    )


def check_retrievers(retrievers: dict[str, RetrieverConfig], depth: int) -> None:
    """Names can be file names, and what a retriever needs stands before it.

    Raises:
        ValueError: they cannot, or it does not.
    """
    before: dict[str, RetrieverConfig] = {}
    for name, retriever in retrievers.items():
        require(is_file_name(name), f"retrievers: {name!r} cannot be a file name")
        for other in retriever.others:
            require(other in before, f"retrievers.{name}: {other} does not stand before it")
        by = retriever.by
        require(by is None or before[by].kind == "dense", f"retrievers.{name}: by: {by} is not dense")
        deepest = retriever.candidates or depth
        require(deepest <= depth, f"retrievers.{name}: candidates: {deepest} is more than depth {depth}")
        before[name] = retriever


def is_file_name(name: str) -> bool:
    """Whether a name can be that of a file or folder everywhere."""
    is_plain = name == name.strip() and name.isprintable() and not set(name) & set('/\\:*?"<>|')
    return is_plain and name not in ("", ".", "..") and len(name.encode()) <= MAX_NAME_BYTES

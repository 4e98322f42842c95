"""The job that makes runs: questions, passages or pages, the retrievers to run, and where they run."""

import urllib.parse
from dataclasses import field, fields
from typing import ClassVar, Literal

from erag_ray.config.inputs import PassageKeys, QuestionKeys
from erag_ray.config.keys.names import default_of
from erag_ray.config.keys.values import (
    Above0,
    AtLeast0,
    AtLeast1,
    Flag,
    Keys,
    NotNegative,
    Path,
    Share,
    Text,
    Whole,
    require,
)
from erag_ray.config.model import check_key_variable

MAX_NAME_BYTES = 150
OBJECT_KINDS = ("langchain", "llama_index", "haystack", "python")
"""Kinds of retrievers that are Python objects."""
OUTSIDE_KINDS = (*OBJECT_KINDS, "http")
ENCODER_KEYS = {"searches", "model", "model_revision", "max_tokens", "dtype", "batch_size"}
# what each kind looks at; code from outside looks at nothing
KEYS = {
    "bm25": {"searches", "analyser", "k1", "b", "method"},
    "dense": {*ENCODER_KEYS, "preset"},
    "rrf": {"of", "candidates", "rrf_k"},
    "rerank": {*ENCODER_KEYS, "of", "by", "candidates"},
    "random": {"seed"},
    **{kind: {"object", "revision", "retries"} for kind in OBJECT_KINDS},
    "http": {"url", "revision", "retries", "timeout_seconds", "api_key_env"},
}


class RetrieverConfig(Keys):
    """One way to rank passages."""

    kind: Text
    """bm25, dense (an encoder and exact search), rrf (reciprocal rank fusion of other runs), rerank (another run,
    scored again), random (the floor), langchain, llama_index, haystack or python (an object or a function of yours),
    http (a service), or package.module:name."""

    searches: Literal["title_and_text", "title_and_first_sentence"] = "title_and_text"
    """What of a passage is searched. bm25, dense, rerank."""

    analyser: Text = "english"
    """bm25: how a text becomes words: english (stop words, Snowball's stemmer), korean (morphemes by Kiwi), or
    package.module:name."""

    k1: NotNegative = 0.9
    """bm25: saturation by term frequency."""

    b: Share = 0.4
    """bm25: how far long passages count less, 0 to 1."""

    method: Literal["lucene", "robertson", "atire"] = "lucene"
    """bm25: the variant, as the package bm25s calls it."""

    model: Path | None = None
    """dense, rerank: a folder, a Hugging Face hub name, or package:NAME/FOLDER for one that an installed Python
    package carries. Code inside a model is never run."""

    model_revision: Text | None = None
    """dense, rerank: branch, tag or commit of a hub model."""

    preset: Text | None = None
    """dense: how the encoder is used: contriever, e5, bge-m3, sentence-transformers (as the model's own files say);
    null: by the model's name."""

    max_tokens: AtLeast1 | None = None
    """dense, rerank: longest input in tokens (null: the preset's or the model's own)."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """dense, rerank: precision of weights and arithmetic of the model."""

    batch_size: AtLeast1 | None = None
    """dense, rerank: texts or pairs in one batch (null: 128 on a GPU, 16 on a CPU, to fit its cache)."""

    of: list[Text] = field(default_factory=list)
    """rrf: the runs that are fused; rerank: the one run that is scored again. They come before this one."""

    by: Text | None = None
    """rerank: the dense retriever before this one whose scores are used, instead of a model (a cross-encoder)."""

    candidates: AtLeast1 | None = None
    """rrf, rerank: how far down the other runs are looked at (null: to the end)."""

    rrf_k: AtLeast1 = 60
    """rrf: a document's score is the sum of 1 / (rrf_k + rank) over the runs (Cormack et al., SIGIR 2009)."""

    seed: Whole = 0
    """random: seed of the draw."""

    object: Text | None = None
    """langchain, llama_index, haystack, python: package.module:name of the retriever, or of a function without
    arguments that makes it."""

    url: Text | None = None
    """http: where POST {"query", "k"} is answered by {"documents": [{"id", "text", "title", "score"}]}."""

    revision: Text | None = None
    """langchain, llama_index, haystack, python, http: which index and settings the retriever has, in your own words;
    required, because a run is made again only when its settings change. Another index needs another revision."""

    retries: AtLeast0 = 3
    """langchain, llama_index, haystack, python, http: how often a question that fails is tried again."""

    timeout_seconds: Above0 = 60.0
    """http: how long one request may take."""

    api_key_env: Text | None = None
    """http: the name of an environment variable, in capitals, with the key (sent as a bearer token); never the
    key itself."""

    def _check(self) -> None:
        require(bool(self.kind.strip()), "kind is blank")
        used = KEYS.get(self.kind, set())
        for key in fields(self):
            plain = key.name in ("kind", *used) or getattr(self, key.name) == default_of(key)
            require(plain, f"{key.name} is given, but {self.kind} does not look at it")
        require(len(set(self.of)) == len(self.of), f"of: {', '.join(self.of)}: a run comes twice")
        require(self.kind != "rrf" or len(self.of) >= 2, "of: rrf needs at least two runs")
        require(self.kind != "rerank" or len(self.of) == 1, "of: rerank needs the one run to score again")
        scored = (self.model is None) != (self.by is None)
        require(self.kind != "rerank" or scored, "model: rerank needs a model or by, one of the two")
        require(self.kind != "dense" or self.model is not None, "model: dense needs one")
        if self.kind in OUTSIDE_KINDS:
            self._check_outside()

    def _check_outside(self) -> None:
        text = f"revision: {self.kind} needs one: which index and settings it has, in your own words"
        require(bool((self.revision or "").strip()), text)
        if self.kind != "http":
            is_named = ":" in (self.object or "").strip(":")
            require(is_named, f"object must be package.module:name, got {self.object}")
            return
        require(bool(self.url), "url: http needs one")
        # the URL may contain a key, which must not appear in a message
        is_plain = not any(sign in str(self.url) for sign in "@?#")
        require(is_plain, "url must be an address without a name, a password or a query")
        address = urllib.parse.urlsplit(str(self.url))
        is_address = address.scheme in ("http", "https") and address.hostname
        require(bool(is_address), f"url: {self.url} is no http:// or https:// address")
        check_key_variable(self.api_key_env)

    @property
    def others(self) -> list[str]:
        """The retrievers that this one needs."""
        return [*self.of, *([self.by] if self.by else [])]


class SearchConfig(Keys):
    """Where indexes are made and searched."""

    num_actors: AtLeast0 = 0
    """Ray actors that index, encode and search (0: this process does it, with all its cores, without Ray)."""

    cpus_per_actor: AtLeast0 = 1
    """CPU cores of each actor."""

    gpus_per_actor: NotNegative = 0.0
    """GPUs of each actor; the index is then on the GPU if the faiss-gpu package is installed."""

    placement_timeout: Above0 | None = 1800.0
    """Seconds that the job waits while no actor gets the CPUs and GPUs it needs; then it fails (null: no limit)."""

    passages_per_shard: AtLeast1 = 1_000_000
    """dense: vectors that one actor loads at a time. The lists do not depend on it."""

    keep_index: Flag = True
    """Leave the index in <out>/indexes: other questions then need no new one."""

    ray_address: Text | None = None
    """Cluster to run on (null: the one that submitted the job, else a local Ray only for this job)."""


class RetrieveConfig(PassageKeys, QuestionKeys):
    """Questions, passages or the pages to make them from, and the retrievers to run."""

    EVERYDAY: ClassVar = {
        "Inputs": ("queries", "passages", "knowledge_source", "splitter", "num_queries"),
        "Retrieval": ("retrievers", "depth", "search.num_actors", "search.gpus_per_actor"),
        "Output": ("out",),
    }

    retrievers: dict[str, RetrieverConfig] = field(default_factory=dict)
    """The runs to make: name -> how; --retrievers.help shows the keys. In this order: retrievers that fuse or rerank
    others come after them."""

    depth: AtLeast1 = 50
    """Length of the lists."""

    search: SearchConfig = field(default_factory=SearchConfig)
    """Where indexes are made and searched."""

    out: Path = "results/retrieval"
    """Folder of <out>/runs/NAME.parquet, <out>/indexes and, from pages, <out>/corpus; not the out of another job."""

    progress: Flag = True
    """Show a progress bar."""

    def _check(self) -> None:
        require(bool(self.retrievers), "retrievers: name at least one")
        check_retrievers(self.retrievers, self.depth)

    @property
    def corpus(self) -> str:
        """The folder of the passages that are made of the knowledge source."""
        return "/".join([self.out.rstrip("/"), "corpus"])

    def run(self, name: str) -> str:
        """The file of a run."""
        return "/".join([self.out.rstrip("/"), "runs", f"{name}.parquet"])


def check_retrievers(retrievers: dict[str, RetrieverConfig], depth: int) -> None:
    """Raise ValueError unless names can be file names, and a retriever comes after those that it needs."""
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


class CorpusConfig(PassageKeys):
    """One corpus: passages, or pages and how they are split."""

    def _check(self) -> None:
        text = "passages: give each corpus either passages or a knowledge_source"
        require(bool(self.passages or self.knowledge_source), text)


def is_file_name(name: str) -> bool:
    """Whether a name can be that of a file or folder everywhere."""
    is_plain = name == name.strip() and name.isprintable() and not set(name) & set('/\\:*?"<>|')
    return is_plain and name not in ("", ".", "..") and len(name.encode()) <= MAX_NAME_BYTES

"""The main job and its single steps: inputs, reader, what to compute, and where it runs."""

from __future__ import annotations

import math
from dataclasses import field, fields, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from erag_ray.config import retrieval
from erag_ray.config.inputs import PassageKeys, QuestionKeys
from erag_ray.config.keys.values import (
    Above0,
    AtLeast0,
    AtLeast1,
    Flag,
    NotNegative,
    Number,
    Path,
    Share,
    Text,
    Whole,
    require,
)
from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.config.report import ReportConfig

CREDITS = ("leave_one_out", "marginal", "shapley")
"""Ways to credit a document of a list with its part in the list's score."""
ORDERS = ("reversed", "shuffled", "unrelated_before", "unrelated_after")
"""Changes of a list that leave its documents in it."""
MIN_READER_QUERIES = 30
"""To fewer questions no auxiliary label is fitted."""
NEEDS_EXTENSION = "extension"
"""Metadata of a key that asks for the extension of its name (`extensions`)."""
KNOWN = "known"
"""The slice by whether the reader answers a question without passages."""
PAGE = "page"
"""The clusters of questions with the same first gold page."""
RETRIEVAL = "retrieval"
"""Folder inside ``out`` with the runs that a job makes."""


class JobConfig(ReportConfig, PassageKeys, QuestionKeys):
    """Inputs, reader, what to compute, and where it runs."""

    EVERYDAY: ClassVar = {
        "Inputs": ("queries", "passages", "runs", "retrievers", "num_queries"),
        "Reader": ("reader.kind", "reader.model", "reader.base_url"),
        "Evaluation": ("score", "depth", "end_to_end_depths", "annotators", "measures", "cutoffs"),
        "Output": ("out", "cache_dir", "dry_run"),
    }

    score: Text | None = None
    """Score of one output against its gold answers (null: by dataset, match instead of exact_match if the
    reader is a chat model): exact_match, token_f1, accuracy, rouge_l_kilt, rouge_l_google, match (the output
    contains a gold answer), char_f1, abstained (how often the reader does not answer: more is not better), judged (the
    judge says whether the output is right), exact_match:ko and the like (exact_match, token_f1, match and char_f1 in a
    language), or package.module:name."""

    language: Text | None = None
    """Language of questions and answers, ISO 639-1: en, ko, zh, ... It picks the form in which the scores exact_match,
    token_f1, match and char_f1 compare texts (null: by dataset for match and char_f1; KILT's form, which is for
    English, for the others)."""

    corpora: dict[str, retrieval.CorpusConfig] = field(default_factory=dict)
    """Instead of passages, for runs that search several corpora, such as one for each chunk size: name -> passages, or
    knowledge_source and splitter. run_corpora says which of them each run searches."""

    run_corpora: dict[str, Text] = field(default_factory=dict)
    """Run -> the corpus that it searches: one of corpora, or any name if the runs bring their texts. Documents get the
    corpus's name before their ids, so equal ids of two corpora stay apart."""

    runs: dict[str, Path] = field(default_factory=dict)
    """The retrievers: name -> file of ranked lists (TREC, .gz too; Parquet, CSV; KILT predictions or lists with their
    texts as .jsonl; {query: {doc: score}} as .json)."""

    retrievers: dict[str, retrieval.RetrieverConfig] = field(default_factory=dict)
    """Runs to be made first: name -> how (see erag-ray retrieve); they are added to the given ones."""

    outputs: list[Path] = field(default_factory=list)
    """Outputs that exist, as {"query_id", "run", "output"} with depth and documents where known, or with "doc_id" in
    place of "run" for the output with one document: JSON Lines (.gz too), Parquet or hf:NAME:SPLIT. The reader is asked
    only for others; if no reader is configured, those are missing, and null."""

    verdicts: list[Path] = field(default_factory=list, metadata={NEEDS_EXTENSION: True})
    """People's verdicts on outputs, as {"query_id", "run", "verdict", "annotator"}, or on documents, with "doc_id" in
    place of "run": how far scores, judge and labels agree with them. A verdict is true, false, 1 or 0."""

    retrieval_depth: AtLeast1 | None = None
    """Length of the lists that are made (null: depth); more than depth where lists are reranked or fused."""

    search: retrieval.SearchConfig = field(default_factory=retrieval.SearchConfig)
    """Where indexes are made and searched."""

    trec_ties: Literal["trec9", "trec10"] = "trec9"
    """Scores of TREC runs are compared as trec_eval 9 (float32) or trec_eval 10 (float64) does; ties go by
    document id, descending."""

    reader: ReaderConfig = field(default_factory=ReaderConfig)
    """The LLM of the RAG system."""

    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """The LLM behind the annotators llm_relevance and llm_relevance_graded, and behind the score judged."""

    auxiliary_reader: ReaderConfig | None = None
    """A cheap reader, with the keys of reader, for the annotators erag_auxiliary and gold_likelihood_auxiliary."""

    depth: AtLeast1 = 10
    """Lists are cut to this many documents before anything else; each of these documents gets a label."""

    end_to_end_depths: list[AtLeast1] = field(default_factory=list)
    """How many documents the reader gets end to end; several in one go (empty: only depth)."""

    repeats: AtLeast1 = 1
    """How often the reader answers each list; its score is the mean, and the report compares the spread between answers
    with that between questions. For readers with a temperature, and servers that do not answer alike. Labels of single
    documents are by one answer."""

    annotators: list[Text] = field(
        default_factory=lambda: ["erag", "contains_answer_dpr", "contains_answer_kilt", "provenance"]
    )
    """Who labels the documents: erag, erag_facts (of each fact of questions with answers_all), contains_answer_dpr,
    contains_answer_kilt, provenance, llm_relevance and llm_relevance_graded (both by the judge), gold_likelihood (of
    the answer, to the reader), gain (erag with the document minus without any), erag_auxiliary and
    gold_likelihood_auxiliary (erag and gold_likelihood by auxiliary_reader), usable (1 minus the probability that the
    reader abstains), udcg and udcg_provenance (usable with a sign, relevance by erag or provenance), distracting, or
    package.module:name."""

    reader_queries: AtLeast1 | None = None
    """The reader answers a random sample of this many questions of each dataset, the same for every run (null: all).
    Annotators that do not ask the reader (contains_answer_dpr, provenance, llm_relevance) label all questions."""

    auxiliary: Text | None = field(default=None, metadata={NEEDS_EXTENSION: True})
    """With reader_queries: the annotator, one of annotators, whose labels of all questions narrow the intervals of
    means and comparisons. Estimates stay unbiased if its labels are wrong. It must not ask the reader (null: none)."""

    measures: list[Text] | None = None
    """Measures of a ranked list: P, R, AP (or MAP), RR (or MRR), nDCG, Success (or Hit Ratio), or package.module:name
    (null: all of these that the labels allow: graded labels without a threshold allow P, nDCG and Success, gains P,
    Success and Harmful; erag_facts, udcg and distracting have others)."""

    cutoffs: list[AtLeast1] = field(default_factory=lambda: [1, 3, 5, 10])
    """Measures are taken at these ranks and at each full depth."""

    threshold: Number | None = None
    """A graded label of at least this counts as relevant in AP, RR and R (null: graded labels have none of these), and
    for udcg and distracting; a label or score of at least this suffices for cells, credits and verdicts (null: 0.5)."""

    slices: list[Text] = field(default_factory=list)
    """Also by slices of the questions: paths in their records, whose dots go down as those of where (meta.hops), and
    known (whether the reader answers without passages). Means, cells and comparisons are given for every value; a
    record without the path, or with null or a blank there, has the value (none). At most 50 values a path."""

    clusters: Text | None = None
    """Questions that belong together, such as those about one page or of one dialogue: the path of what they share in
    their records (meta.page), or page (their first gold page). Intervals, tests and needed questions are then those of
    whole clusters; a question without a value is by itself (null: each is)."""

    statistics: list[Text] = field(default_factory=lambda: ["kendall_tau_b", "spearman_rho"])
    """Agreement between a measure and the end-to-end score."""

    credits: list[Text] = field(default_factory=list, metadata={NEEDS_EXTENSION: True})
    """Also how much each document adds to the score of its list: leave_one_out (the list's score minus that without the
    document), marginal (the first k documents minus the first k - 1), shapley (the mean over orders in which documents
    may come). Each takes further answers; the cost preview counts them."""

    credit_depth: AtLeast1 | None = None
    """Number of documents of each list that get credits, from the first on (null: the largest of end_to_end_depths)."""

    credit_queries: AtLeast1 | None = None
    """Credits and orders are of a sample of this many questions of each dataset (null: all)."""

    shapley_permutations: Whole = 32
    """Random orders of a list's documents for shapley, an even number: each is used with its reverse. If all
    subsets of a list need no more answers than these orders may, all are taken, and the value is exact."""

    orders: list[Text] = field(default_factory=list, metadata={NEEDS_EXTENSION: True})
    """Also how far the score moves when each end-to-end list is reversed, shuffled, or has documents of other questions
    put in front (unrelated_before) or at the end (unrelated_after)."""

    num_unrelated: AtLeast1 = 3
    """Number of documents of other questions that are put before or after a list."""

    num_resamples: Annotated[Whole, Field(ge=100)] = 1000
    """Bootstrap resamples of the questions behind intervals, such as those of agreement."""

    confidence: Annotated[Number, Field(gt=0, lt=1)] = 0.95
    """Coverage of the intervals."""

    num_permutations: Annotated[Whole, Field(ge=100)] = 1000
    """Random pairings of a measure and the end-to-end score behind each p-value of a correlation."""

    out: Path = "results/job"
    """Folder of this job's sealed tables and report; a path or URI that all nodes see."""

    cache_dir: Path = "results/store"
    """Folder of all responses, shared by jobs: a response in it is never requested again."""

    ray_address: Text | None = None
    """Cluster to run on (null: the one that submitted the job, else a local Ray only for this job)."""

    num_readers: AtLeast0 | None = None
    """Reader actors (null: one per GPU, two for a T5 of at most 400 MB if each has two CPUs; without GPUs one; 0, and
    where Ray is not installed: none, this process reads)."""

    max_readers: AtLeast1 | None = None
    """Reader actors that there may be once nodes join (null: no more than at the start). A reader on a node that leaves
    goes on elsewhere."""

    wait_for_gpus: AtLeast1 | None = None
    """GPUs that the cluster is to have: the job waits for them (null: what is there)."""

    placement_timeout: Above0 | None = 1800.0
    """Seconds that the job waits for wait_for_gpus, or while no reader gets the CPUs and GPUs that it needs; then it
    fails (null: no limit)."""

    cpus_per_reader: AtLeast1 | None = None
    """CPU cores of each reader actor, at most an even share (null: that share on GPUs, all cores without)."""

    rows_per_block: AtLeast1 | None = None
    """Requests in one unit of work and of retry (null: by the amount of work and, where the store knows the reader's
    speed, a minute's; at least 128)."""

    write_every_seconds: NotNegative = 20.0
    """A reader writes what it has read at least this often (as soon as the batch in hand is done)."""

    recheck_fraction: Share = 0.01
    """Served models, vllm, and models on GPUs, whose sums depend on the batch: this share of the new requests is asked
    again at the end; the report says how many outputs and scores have changed (0: none is)."""

    max_cost: Above0 | None = None
    """Served models with price_per_million: stop, with all that was answered kept, once the new requests of one model
    have cost so much, as reader and as judge together (null: no limit)."""

    max_cost_over: Literal["start", "attempts"] = "start"
    """What max_cost limits: what this start of the job costs, or also what earlier ones with the same out have cost."""

    max_batch_seconds: Above0 | Literal["auto"] | None = "auto"
    """A batch that takes longer ends its reader's process: its requests are then read one by one, and one that takes
    longer by itself becomes an error. auto: 20 times the slowest batch of the process, at least ten minutes, and an
    hour for the first and for loading; none for served models, which have their own, or in this process (null)."""

    retry_failed: Flag = False
    """Read again what ended as an error in an earlier job and would stay one (kinds input and refused); what did not
    fit or crashed (kind resource), and what a reader of your own raised for (kind code), is tried again in any case."""

    max_error_fraction: Share = 0.0
    """Largest share of requests that may end as error rows, and of outputs that a score of your own may raise for,
    before the job counts as failed."""

    track: Text | None = field(default=None, metadata={NEEDS_EXTENSION: True})
    """compare and evaluate: log the finished job to this tracker, mlflow, trackio or wandb (null: none): config, means
    with intervals, cost, the page and the measures of each question."""

    dry_run: Flag = False
    """compare only: check everything, say what there is to read, and how long it takes if a job in ``out`` has read a
    sample before (num_queries); then stop. Results in ``out`` stay; the runs of ``retrievers`` are made, in
    place of those made with other settings."""

    price_per_hour: NotNegative | None = None
    """dry_run: of one reader (a GPU), in any currency, to say what all will cost."""

    def _check(self) -> None:
        made_depth = self.retrieval_depth or self.depth
        require(made_depth >= self.depth, f"retrieval_depth: {made_depth} is less than depth {self.depth}")
        retrieval.check_retrievers(self.retrievers, made_depth)
        self._check_corpora()
        text = "run_corpora: give corpora in place of passages and knowledge_source"
        require(not ((self.passages or self.knowledge_source) and self.run_corpora), text)
        both = sorted(set(self.runs) & set(self.retrievers))
        require(not both, f"runs and retrievers: both name {', '.join(both)}")
        text = "knowledge_source: only with retrievers, which search its passages; else give passages"
        require(bool(self.retrievers) or not self.knowledge_source, text)
        depths = [("end_to_end_depths", depth) for depth in self.end_to_end_depths]
        for key, depth in [*depths, ("credit_depth", self.credit_depth or 1)]:
            require(depth <= self.depth, f"{key}: {depth} is not within 1..depth={self.depth}")
        self._check_credits()
        self._check_auxiliary()
        text = "num_readers: 0 does not go with a number as max_batch_seconds, which ends processes"
        require(self.num_readers != 0 or not isinstance(self.max_batch_seconds, float), text)
        text = f"max_readers: {self.max_readers} is less than num_readers {self.num_readers}"
        require((self.max_readers or math.inf) >= (self.num_readers or 0), text)
        models = (self.reader, self.judge, *filter(None, [self.auxiliary_reader]))
        has_price = any(model.price_per_million for model in models)
        text = "max_cost needs reader.price_per_million, or the judge's or the auxiliary reader's"
        require(self.max_cost is None or has_price, text)

    def _check_auxiliary(self) -> None:
        name, count = self.auxiliary, self.reader_queries
        if name is None:
            return
        text = "auxiliary: set reader_queries, so that the reader answers a sample; else there is nothing to predict"
        require(count is not None, text)
        text = f"reader_queries must be at least {MIN_READER_QUERIES} with auxiliary, to fit it, got {count}"
        require(count is None or count >= MIN_READER_QUERIES, text)
        text = f"auxiliary: {name} is not among annotators ({', '.join(self.annotators)})"
        require(name in self.annotators, text)

    def _check_corpora(self) -> None:
        """Check that every run says which corpus it searches, if one does, and that every corpus is searched."""
        corpora, run_corpora, names = self.corpora, self.run_corpora, [*self.runs, *self.retrievers]
        for name in [*corpora, *run_corpora.values()]:
            require(retrieval.is_file_name(name), f"corpora: {name!r} cannot be a file name")
        for run in run_corpora:
            require(run in names, f"run_corpora: {run} is no run; the runs are {', '.join(names)}")
        for run in names if corpora or run_corpora else ():
            require(run in run_corpora, f"run_corpora: add which corpus {run} searches")
            corpus = run_corpora[run]
            known = not corpora or corpus in corpora
            require(known, f"run_corpora: {run}: {corpus} is none of the corpora {', '.join(corpora)}")
        for run, retriever in self.retrievers.items() if run_corpora else ():
            for other in retriever.others:
                text = f"retrievers.{run}: {other} searches another corpus, whose documents have other ids"
                require(run_corpora[other] == run_corpora[run], text)
        for name, corpus_config in corpora.items():
            require(name in run_corpora.values(), f"corpora: no run searches {name}")
            is_split = name in {run_corpora[run] for run in self.retrievers}
            text = "a knowledge_source is split for retrievers alone, and none searches it; give passages"
            require(is_split or not corpus_config.knowledge_source, f"corpora.{name}: {text}")

    def _check_credits(self) -> None:
        for key, known in (("credits", CREDITS), ("orders", ORDERS)):
            names = getattr(self, key)
            for name in names:
                require(name in known, f"{key}: {name} is unknown; choose of {', '.join(known)}")
                require(names.count(name) == 1, f"{key}: {name} is named more than once")
        count = self.shapley_permutations
        is_even = count >= 4 and count % 2 == 0
        require(is_even, f"shapley_permutations must be an even number of at least 4, got {count}")

    @property
    def asks_reader(self) -> bool:
        """Whether the reader is asked: not where outputs are given and no reader is configured."""
        return not self.outputs or self.reader != ReaderConfig()

    @property
    def is_chat(self) -> bool:
        """Whether outputs may be sentences: of a chat model, and given ones of systems that are not known."""
        return self.reader.is_chat or not self.asks_reader

    @property
    def default_score(self) -> str | None:
        """The score of short answers where the config names none: match for a chat model (None: exact_match)."""
        return "match" if self.is_chat and self.score is None else None

    @property
    def depths(self) -> list[int]:
        """The depths of end-to-end readings, ascending, without repeats."""
        return sorted(set(self.end_to_end_depths)) or [self.depth]

    @property
    def searched_corpora(self) -> list[str]:
        """The corpora that the runs search, as far as they are named, in the order of `corpora`."""
        return list(dict.fromkeys([*self.corpora, *sorted(self.run_corpora.values())]))

    def retrievals(self) -> list[retrieval.RetrieveConfig]:
        """The jobs that make the runs of ``retrievers``: one in <out>/retrieval, or one for each corpus below it.

        Raises:
            ValueError: the settings of one do not go together.
        """
        retrievers: dict[str, dict[str, retrieval.RetrieverConfig]] = {}
        for name, retriever in self.retrievers.items():
            retrievers.setdefault(self.run_corpora.get(name, ""), {})[name] = retriever
        questions = {one.name: getattr(self, one.name) for one in fields(QuestionKeys)}
        return [
            retrieval.RetrieveConfig(
                **questions,
                **{
                    one.name: getattr(self.corpora.get(corpus, self), one.name) for one in fields(PassageKeys)
                },
                retrievers=searching,
                depth=self.retrieval_depth or self.depth,
                search=self.search,
                out="/".join([self.out.rstrip("/"), RETRIEVAL, *filter(None, [corpus])]),
                progress=self.progress,
            )
            for corpus, searching in retrievers.items()
        ]

    def with_retrieved(self) -> JobConfig:
        """The config with the runs that are made, and the passages that knowledge sources give, as given ones."""
        if not self.retrievers:
            return self
        parts = self.retrievals()
        files = {name: job.run(name) for job in parts for name in job.retrievers}
        names = [self.run_corpora.get(next(iter(job.retrievers)), "") for job in parts]
        split = {name: [job.corpus] for name, job in zip(names, parts, strict=True) if job.knowledge_source}
        from_pages = {
            name: retrieval.CorpusConfig(passages=passages) for name, passages in split.items() if name
        }
        return replace(
            self,
            passages=split.get("", self.passages),
            corpora=self.corpora | from_pages,
            runs={**self.runs, **files},
            knowledge_source=[],
            retrievers={},
        )

"""Keys of the questions and passages of a job: shared by all jobs that have them."""

from dataclasses import field

from erag_ray.config.keys.values import AtLeast0, AtLeast1, Keys, Path, Text, require

QUESTION_FIELDS = ("question", "answers", "answers_all", "id")


class QuestionKeys(Keys):
    """Question files, and which of their questions are used."""

    queries: list[Path] = field(default_factory=list)
    """Question files: JSON Lines (.gz too) of KILT tasks, of BEIR queries with answers in their metadata, or of
    {"question", "answers", "id"}, also as a JSON list, Parquet, .csv or .tsv; or SQuAD's or KLUE-MRC's JSON.
    hf:NAME:SPLIT, hf:NAME:CONFIG:SPLIT and hf:/folder:SPLIT are read by the library datasets."""

    query_format: Text = "auto"
    """Form of the question files: auto (by the fields of each record), kilt, beir, plain, squad, klue, or
    package.module:name."""

    question_fields: dict[str, Text] = field(default_factory=dict)
    """Fields of the records under other names: question, answers, answers_all or id -> its path ({question: q,
    answers: a.text, id: key}). Dots go down into the record. All records are then of the plain format."""

    qrels: list[Path] = field(default_factory=list)
    """TREC qrels (query 0 document grade), BEIR's (TSV) or MTEB's (JSON Lines, Parquet or hf:NAME:SPLIT with
    query-id, corpus-id and score, also as qid, docid and rel): the gold passages of questions whose file names none.
    BEIR's questions without a line in them are left out."""

    triviaqa_questions: list[Path] = field(default_factory=list)
    """TriviaQA's original JSON files: KILT's TriviaQA files have ids without questions."""

    dataset: Text | None = None
    """Name of the dataset, for files that do not say it."""

    filters: list[Text] = field(default_factory=list)
    """Only questions whose record has these values: path=value, or dataset:path=value for one dataset alone
    (fever_fm2:meta.split=test). The path's dots go down into the record; a record without the path is left out."""

    num_queries: AtLeast1 | None = None
    """Use a sample of this many questions, drawn from all datasets together, the same for every run and for every job
    with this seed (null: all). A dataset of which none is drawn is named."""

    seed: AtLeast0 = 0
    """Seed of all samples, resamples and random orders."""

    def _check(self) -> None:
        names = ", ".join(QUESTION_FIELDS)
        for name, path in self.question_fields.items():
            require(name in QUESTION_FIELDS, f"question_fields: {name} is none of {names}")
            require(all(path.split(".")), f"question_fields.{name}: {path!r} is no path")
        text = f"question_fields: only with query_format auto or plain, not {self.query_format}"
        require(self.query_format in ("auto", "plain") or not self.question_fields, text)


class PassageKeys(Keys):
    """Passages, or the pages that they are made from."""

    passages: list[Path] = field(default_factory=list)
    """Passage files: JSONL (.gz), CSV or Parquet with doc_id, page_id, title, text; BEIR corpus.jsonl; DPR's .tsv; or
    the corpus folder that erag-ray retrieve has made. None are needed where the runs bring their texts."""

    knowledge_source: list[Path] = field(default_factory=list)
    """Instead of passages, with retrievers: pages, which are split. KILT's knowledge source or WikiExtractor's JSON
    Lines (.gz too), Parquet with title and text, a folder of TITLE.txt, or the contexts of the JSON of SQuAD or
    KLUE-MRC."""

    splitter: Text = "whitespace100"
    """How pages become passages: whitespace100 (windows of 100 words; any other number too), recursive_characters
    (300 characters, by LangChain), or package.module:name."""

    def _check(self) -> None:
        text = "passages: give either passages or a knowledge_source, not both"
        require(not (self.passages and self.knowledge_source), text)

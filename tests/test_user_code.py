"""Code of the user's own: what it raises concerns one request, one output or the job, and is told in one line."""

import contextlib
import dataclasses
import pathlib
import re
import runpy
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest
from guides import files_of, job_commands
from pending_requests import FORM, actor_of, as_pending, in_order, pending, requests, work_of
from tiny import RUNS as LISTS
from tiny import RunJob, Tiny, job_command, table

from erag_ray.analyses.means import MEANS
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.extras.sequential_test import stage as settling
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.inference.cluster.session import ray_session
from erag_ray.inference.pool import run
from erag_ray.inputs.stage import prepare
from erag_ray.models import Isolation, Rendered, make_model, render_isolated
from erag_ray.models.isolation import ERRORS_IN_A_ROW
from erag_ray.prompts.request import Passage, Request, Response
from erag_ray.retrieve.stage import make_runs
from erag_ray.store.responses import ResponseStore
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.store.tables import TableStore
from erag_ray.support import registry as names
from erag_ray.support import user_code
from erag_ray.support.errors import InputError, JobError

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], pathlib.Path]:
    """Writes a module of the user's own to the folder where the job starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, text: str) -> pathlib.Path:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return path

    return write


# --- an exception in a line ---


def fault(raises: Callable[[], object]) -> user_code.Fault:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        raises()
    return user_code.fault_of(caught.value, raises)


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_a_fault_is_one_line_without_control_characters_of_bounded_length() -> None:
    def steers() -> None:
        raise ValueError("first\nsecond\x1b[31m \u202e" + "x" * 1000)

    line = fault(steers).line
    assert line.startswith("ValueError: first second [31m xxx")
    assert line.isprintable()
    assert len(line) == user_code.LINE_CHARACTERS


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError("API_KEY"), "KeyError: 'API_KEY'"),
        (AssertionError(), "AssertionError"),
        (Mute(), "Mute: a message that cannot be shown"),
    ],
)
def test_what_a_fault_says_of_an_exception(error: Exception, line: str) -> None:
    assert user_code.fault_of(error, __name__).line == line


def test_a_fault_names_the_last_line_of_the_users_package(module: Callable[..., pathlib.Path]) -> None:
    module(
        "mine_places",
        "import json\ndef outer():\n    return inner()\ndef inner():\n    return json.loads('{')\n",
    )
    assert fault(names.find("x", "mine_places:outer", {})).location == "mine_places.py:5"


def test_a_fault_without_a_line_in_the_users_package_names_where_its_code_begins(
    module: Callable[..., pathlib.Path],
) -> None:
    module("mine_begins", "\n\nclass Mine:\n    def call(self, other):\n        return 1\n")
    mine = names.find("x", "mine_begins:Mine", {})
    with pytest.raises(TypeError) as caught:
        mine().call()
    assert user_code.fault_of(caught.value, mine).location == "mine_begins.py:3"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import os\nKEY = os.environ['NO_SUCH_KEY_HERE']\n",
            "KeyError: 'NO_SUCH_KEY_HERE' (mine_import.py:2)",
        ),
        ("raise RuntimeError('no licence')\n", "RuntimeError: no licence (mine_import.py:1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (mine_import.py, line 1)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_line(
    module: Callable[..., pathlib.Path], text: str, why: str
) -> None:
    module("mine_import", text)
    with pytest.raises(ValueError, match=re.escape(f"score 'mine_import:X' cannot be loaded: {why}")):
        names.find("score", "mine_import:X", {})


# --- a model, for a request ---


def isolation(kind: str = "Picky", **settings: Any) -> tuple[Isolation, Any]:
    model = make_model(ReaderConfig(kind=f"failing:{kind}", **settings))
    return Isolation(model), model


def asked(*questions: str, num_each: int = 1) -> list[Request]:
    """So many requests of each question, each with another passage."""
    return [
        Request(FORM, question, (Passage("Title", "x" * (number + 1)),))
        for question in questions
        for number in range(num_each)
    ]


def failed_places(responses: Sequence[Response]) -> list[int]:
    return [place for place, response in enumerate(responses) if response.failure]


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("Picky", "answer"),
        ("PickyInBatches", "render"),
        ("PickyInBatches", "arrange"),
        ("PickyInBatches", "generate"),
    ],
)
def test_a_request_for_which_a_model_raises_is_an_error_of_its_own(kind: str, method: str) -> None:
    whole, model = isolation(kind, batch_size=8)
    questions = [f"question {number}" for number in range(100)]
    questions[37], questions[99] = f"{method} one", f"{method} other"
    found = in_order(whole.run(asked(*questions)))
    assert failed_places(found) == [37, 99]
    failure, other = found[37].failure, found[99].failure
    assert failure
    assert other
    assert (failure.kind, other.kind) == ("code", "code")
    assert failure.text.startswith(f"RuntimeError: 429 Too Many Requests {method} one (")
    assert re.search(r"failing\.py:\d+\)$", failure.text)
    assert [response.text for response in found if not response.failure] == ["Title"] * 98
    # in order the one that fails is known at once; of 13 batches what is left is halved, at most 7 times for each
    assert model.calls <= (104 if kind == "Picky" else 13 + 2 * (2 * 7))


def test_a_request_that_fails_is_tried_as_often_as_the_requests_can_be_halved() -> None:
    whole, model = isolation("Counting", batch_size=8)
    model.tries = Counter()
    questions = [f"question {number:04}" for number in range(1000)]
    questions[500] = "generate 0500"
    in_order(whole.run(asked(*questions)))
    assert model.tries["generate 0500"] <= 10
    # and with it those of its batch
    assert model.tries.total() <= 1000 + 10 * 8


def run_until_it_ends(whole: Isolation, requests: Sequence[Request]) -> tuple[list[Response], str]:
    """The responses before a job ends, and its message."""
    found: list[Response] = []
    try:
        for _, response in whole.run(requests):
            found.append(response)
    except JobError as ended:
        return found, str(ended)
    raise AssertionError("it did not end")


def test_a_fault_of_every_request_ends_the_job_after_a_few_calls() -> None:
    whole, model = isolation("NoKey")
    found, why = run_until_it_ends(whole, asked(*(f"question {number}" for number in range(1000))))
    assert re.search(
        r"^reader failing:NoKey: 10 requests in a row failed, and those of other questions fail too: "
        r"PermissionError: 401 Unauthorized \(.*failing\.py:\d+\); responses and .* are kept",
        why,
    )
    assert len(found) == ERRORS_IN_A_ROW
    assert model.calls < 40


def test_a_fault_of_every_request_ends_the_job_where_blocks_hold_one_question_each() -> None:
    whole, _ = isolation("NoKey")
    for number in range(3):
        found = in_order(whole.run(asked(f"question {number}", num_each=20)))
        assert failed_places(found) == list(range(20))
    found, why = run_until_it_ends(whole, asked("question 9", num_each=20))
    assert len(found) == 1
    assert "61 requests in a row" in why


def test_a_question_that_always_fails_does_not_end_the_job() -> None:
    whole, _ = isolation()
    found = in_order(whole.run(asked("question", "answer", "another", num_each=60)))
    assert failed_places(found) == list(range(60, 120))


def test_the_longest_requests_may_all_fail() -> None:
    # a server whose context is small: batches go longest first, so these come one after the other
    whole, _ = isolation("PickyInBatches")
    questions = [f"question {number:03} generate{'x' * 400}" for number in range(40)]
    found = in_order(whole.run(asked(*questions, *(f"question {number}" for number in range(160)))))
    assert failed_places(found) == list(range(40))


@pytest.mark.parametrize(
    ("results", "why"),
    [
        (["a text"], "run yielded 'a text', not a request's index and an erag_ray.models.Response"),
        ([(1, "a text")], "run yielded (1, 'a text'), not a request's index"),
        ([(0, Response(text=None))], "run yielded the text None for a request to generate"),
        ([], "run yielded no response to 1 of 1 requests"),
        ([(7, Response(text="a"))], "yielded index 7 twice, or it is outside"),
        ([(0, Response(text="a")), (0, Response(text="b"))], "yielded index 0 twice"),
        ([(0, Response(text="a", num_output_tokens="b"))], "run yielded num_output_tokens='b'"),  # type: ignore[arg-type]
        ([(0, Response(text="a", num_prompt_tokens=-1))], "run yielded num_prompt_tokens=-1"),
        ([(0, Response(text="\ud800"))], "surrogates"),
    ],
)
def test_results_that_cannot_be_are_errors_too(results: list[Any], why: str) -> None:
    whole, model = isolation("Wrong")
    model.results = results
    found = in_order(whole.run(asked("right", "wrong", "right")))
    assert failed_places(found) == [1]
    assert found[1].failure
    assert found[1].failure.kind == "code"
    assert why in found[1].failure.text


def test_prompts_that_cannot_be_are_told() -> None:
    whole, _ = isolation("Listed")
    (found,) = in_order(whole.run(asked("one")))
    assert found.failure
    assert "unhashable type: 'list'" in found.failure.text


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        ("failing:Picky", KeyboardInterrupt()),
        ("failing:Picky", SystemExit()),
        ("failing:Picky", JobError("mine")),
        ("failing:Picky", InputError(["mine"])),
        ("failing:Picky", RuntimeError("CUDA error: device-side assert triggered")),
        # what a model of this package raises is a bug
        ("echo", KeyError("a bug")),
    ],
)
def test_what_is_no_fault_of_a_request_passes(
    kind: str, passes: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, calls = make_model(ReaderConfig(kind=kind)), []

    def ends(request: object) -> None:
        calls.append(request)
        raise passes

    monkeypatch.setattr(model, "answer", ends)
    with pytest.raises(type(passes), match=f"^{re.escape(str(passes))}"):
        list(Isolation(model).run(asked("one", "two")))
    assert len(calls) == 1


def test_the_preview_leaves_out_what_cannot_be_rendered() -> None:
    _, model = isolation("PickyInBatches")
    prompts = render_isolated(model, requests("one", "render", "two"))
    assert [prompt.num_tokens for prompt in prompts] == [3, 3]


@pytest.mark.parametrize("gives", [["a text"], [], [Rendered(text="one"), Rendered(text="other")]])
def test_the_preview_leaves_out_what_is_not_rendered(
    gives: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = isolation()
    monkeypatch.setattr(model, "render", lambda requests: gives)
    assert render_isolated(model, requests("one")) == []


# --- in the process of a model ---


def test_what_was_answered_before_a_model_cannot_go_on_is_written(tmp_path: pathlib.Path) -> None:
    actor = actor_of(ReaderConfig(kind="failing:EndsLate", batch_size=4), tmp_path)
    with pytest.raises(JobError, match="gone"):
        list(actor(pending(*(f"question {number:02}" for number in range(80)))))
    (folder,) = tmp_path.glob("responses/*")
    store = ResponseStore(str(tmp_path), folder.name)
    (file,) = store.folder.names(suffix=".parquet")
    written = pl.DataFrame(store.folder.read_parquet(file))
    assert written["output"].count() == 12
    assert written["error_kind"].count() == ERRORS_IN_A_ROW
    assert store.keys().height == 12  # the errors are run again


@pytest.mark.cluster
def test_a_process_tells_of_a_model_that_cannot_be_loaded(local_ray: None, tmp_path: pathlib.Path) -> None:
    work, config = work_of(tmp_path, pending("one"), ReaderConfig(kind="failing:NoLoad"))
    with ray_session(), pytest.raises(JobError) as ended:
        run(work, config, "job")
    assert re.fullmatch(
        r"reader failing:NoLoad: load: FileNotFoundError: no weights here \(.*failing\.py:\d+\); "
        r"responses and sealed tables so far are kept; fix the problem and start the same command again",
        str(ended.value),
    )


@pytest.mark.cluster
def test_processes_run_around_a_request_that_fails(local_ray: None, tmp_path: pathlib.Path) -> None:
    questions = [f"question {number}" for number in range(60)]
    questions[7] = "answer"
    work, config = work_of(tmp_path, as_pending(asked(*questions)), ReaderConfig(kind="failing:Picky"))
    with ray_session():
        run(work, config, "job")
    assert ResponseStore(str(tmp_path), work.model).keys().height == 59


# --- a job with a reader ---

READER = """
from erag_ray.models.echo import EchoModel

class Limited(EchoModel):
    def answer(self, request):
        if "mill" in request.question and len(request.passages) == 1:
            raise RuntimeError("429 Too Many Requests")
        return super().answer(request)
"""


def last_lines(said: str, count: int) -> list[str]:
    return said.strip().splitlines()[-count:]


def test_a_job_keeps_what_was_answered_and_reads_the_rest_when_it_starts_again(
    tiny: Tiny, job: RunJob, reads_here: list[int], module: Callable[..., pathlib.Path]
) -> None:
    path = module("my_api", READER)
    tiny = tiny.with_config(reader=ReaderConfig(kind="my_api:Limited"))
    code, said = job("compare", tiny)
    assert code == 1
    place = "(my_api.py:7)"
    assert last_lines(said, 3) == [
        "2 of 37 requests are errors, more than max_error_fraction 0.0. The responses so far are kept",
        f"  query q6, documents ['d10']: code: RuntimeError: 429 Too Many Requests {place}",
        f"  query q6, documents ['d11']: code: RuntimeError: 429 Too Many Requests {place}",
    ]
    # the author has mended it, and its outputs are the same
    path.write_text(READER.replace("len(request.passages) == 1", "False"))
    sys.modules.pop("my_api")
    code, said = job("compare", tiny)
    assert (code, reads_here) == (0, [37, 2])
    assert table(tiny, LABELS, annotator="erag")["label"].null_count() == 0


READERS = """
from erag_ray.models import LocalModel, Model
from erag_ray.models.echo import EchoModel

class NoInit(EchoModel):
    def __init__(self, config):
        raise KeyError("API_KEY")

class NoSuper(EchoModel):
    def __init__(self, config):
        self.limit = 1

class NoIdentity(EchoModel):
    def fingerprint_fields(self):
        raise OSError("the server does not say which model it has")

class NoRun(Model):
    def load(self):
        pass

class Unstable(EchoModel):
    def fingerprint_fields(self):
        return {**super().fingerprint_fields(), "server": object()}

class NoCheck(EchoModel):
    def check(self, form):
        return form.max_length

class NoResources(EchoModel):
    def resources(self):
        return self.gpus
"""


# --- scores ---

SCORES = """
from erag_ray.measures.scores import Score, exact_match

def strict(output, answers):
    if output == "Orla":
        raise ZeroDivisionError("no words\\nat all")
    return exact_match(output, answers)

def plain(output, answers):
    return 1.0

STRICT = Score(name="strict", function=strict, binary=True, normalises=True)
NAN = Score(name="nan", function=lambda output, answers: float("nan"), binary=False, normalises=False)
"""


def test_a_score_that_raises_fails_the_job_by_name(
    tiny: Tiny, job: RunJob, reads_here: list[int], module: Callable[..., pathlib.Path]
) -> None:
    module("my_scores", SCORES)
    tiny = tiny.with_config(score="my_scores:STRICT")
    code, said = job("compare", tiny)
    assert code == 1
    # 18 pairs, and the title of each passage is another output
    assert last_lines(said, 2) == [
        "1 of 18 scores are errors, more than max_error_fraction 0.0. The responses so far are kept",
        "  score strict, query q2, output 'Orla': ZeroDivisionError: no words at all (my_scores.py:6)",
    ]
    assert not TableStore(tiny.config.out).is_sealed(LABELS)
    # what was read stays: nothing is read again, by whatever score
    code, _ = job("compare", tiny.with_config(score="exact_match"))
    assert (code, reads_here) == (0, [37])


def test_scores_that_are_allowed_to_raise_leave_nulls_which_the_report_counts(
    tiny: Tiny, job: RunJob, reads_here: list[int], module: Callable[..., pathlib.Path]
) -> None:
    module("my_scores", SCORES)
    tiny = tiny.with_config(score="my_scores:STRICT", max_error_fraction=0.5, annotators=["erag", "gain"])
    code, said = job("compare", tiny)
    assert code == 0, said
    labels = table(tiny, LABELS, annotator="erag").filter(pl.col("label").is_null())
    assert labels.select("query_id", "doc_id").rows() == [("q2", "d3")]
    unjudged = table(tiny, UTILITY).filter(pl.col("value").is_null())
    assert set(unjudged["query_id"]) == {"q2"}
    report = pathlib.Path(tiny.config.out, "report.md").read_text()
    assert "outputs of single documents without a score, not judged: 2 of " in report
    assert "outputs of lists without a score, not judged: " in report
    assert "query q2, output 'Orla': ZeroDivisionError: no words at all" in report


def test_a_utility_that_cannot_be_scored_fails_its_own_step(
    tiny: Tiny, job: RunJob, reads_here: list[int], module: Callable[..., pathlib.Path]
) -> None:
    module("my_scores", SCORES)
    tiny = tiny.with_config(score="my_scores:STRICT")
    assert job("prepare", tiny)[0] == 0
    code, said = job("end_to_end", tiny)
    assert code == 1
    assert "scores are errors" in said
    assert not TableStore(tiny.config.out).is_sealed(UTILITY)


def test_settling_stops_at_an_output_that_cannot_be_scored(
    tiny: Tiny, reads_here: list[int], module: Callable[..., pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module("my_scores", SCORES)
    monkeypatch.setattr(settling, "readers_session", lambda config: contextlib.nullcontext())
    settings = {key.name: getattr(tiny.config, key.name) for key in dataclasses.fields(JobConfig)}
    settings |= {"score": "my_scores:STRICT", "compare": ["good", "bad"], "cutoff": 1, "fraction": 1.0}
    config = SettleConfig(**settings)
    with pytest.raises(
        JobError, match=r"1 of \d+ scores are errors.*\n.*query q2, output 'Orla': ZeroDivision"
    ):
        settling.settle(config, prepare(config))


def test_a_plain_function_is_answered_with_the_lines_to_write(
    tiny: Tiny, job: RunJob, no_reader: None, module: Callable[..., pathlib.Path]
) -> None:
    path = module("my_scores", SCORES)
    _, said = job("compare", tiny.with_config(score="my_scores:plain"))
    lines = re.search(r"write these two lines, `(.*)` and `(.*)`, and name my_scores:PLAIN", said)
    assert lines
    path.write_text(f"{SCORES}\n{lines[1]}\n{lines[2]}\n")
    sys.modules.pop("my_scores")
    assert names.find("score", "my_scores:PLAIN", {}).name == "plain"


# --- retrievers ---

RETRIEVERS = """
import polars as pl

class First:
    settings = {"version": 1}
    def index(self, corpus):
        self.doc_ids = corpus["doc_id"].sort()
        return self
    def search(self, queries, depth):
        best = pl.DataFrame({"doc_id": self.doc_ids.head(depth)}).with_row_index("rank", offset=1)
        return queries.select("query_id").join(best.with_columns(score=1 / pl.col("rank")), how="cross")

class Down(First):
    def search(self, queries, depth):
        raise ConnectionError("the search service is down")

class Twice(First):
    def search(self, queries, depth):
        return super().search(queries, depth).with_columns(rank=pl.lit(1))

class Configured(First):
    def __init__(self, config):
        self.settings = {"kind": config.kind}

class Needs(First):
    def __init__(self, url):
        pass

FIRST, DOWN = First(), Down()
"""


def retrieving(tiny: Tiny, *kinds: str) -> Tiny:
    retrievers = {kind.lower(): RetrieverConfig(kind=f"my_retrievers:{kind}") for kind in kinds}
    return tiny.with_config(runs={}, retrievers={"bm25": RetrieverConfig(kind="bm25"), **retrievers})


@pytest.mark.parametrize("kind", ["FIRST", "First", "Configured"])
def test_a_retriever_is_named_as_a_class_or_as_an_instance(
    tiny: Tiny, module: Callable[..., pathlib.Path], kind: str
) -> None:
    made = retrieving(tiny, kind).config
    changed = RETRIEVERS.replace("sort()", "sort(descending=True)")
    # code that has changed is run again, under the same settings too
    for code, expected in ((RETRIEVERS, ["d1", "d10", "d11"]), (changed, ["d9", "d8", "d7"])):
        module("my_retrievers", code)
        make_runs(made)
        run = pl.read_parquet(made.with_retrieved().runs[kind.lower()])
        assert run.filter(query_id="q4").sort("rank")["doc_id"].to_list() == expected


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("DOWN", "retrievers.down: ConnectionError: the search service is down (my_retrievers.py:15)"),
        ("Twice", "retrievers.twice: ranks must be 1, 2, ... in each list, such as 'd10' at rank 1 for"),
    ],
)
def test_a_retriever_that_raises_ends_the_job_and_the_runs_that_are_made_stay_sealed(
    tiny: Tiny, job: RunJob, no_reader: None, module: Callable[..., pathlib.Path], kind: str, line: str
) -> None:
    module("my_retrievers", RETRIEVERS)
    code, said = job("compare", retrieving(tiny, kind))
    # lists that are wrong are wrong inputs
    assert code == {"DOWN": 1, "Twice": 2}[kind]
    assert line in said
    (bm25,) = pathlib.Path(tiny.config.out, "retrieval", "runs").glob("*.json")
    assert bm25.name == "bm25.json"
    made = bm25.stat().st_mtime_ns
    job("compare", retrieving(tiny, kind))
    assert bm25.stat().st_mtime_ns == made


ANNOTATORS = """
import polars as pl
from erag_ray.annotators import Annotator

def breaks(evidence):
    return evidence.corpus["no_such_column"]

def gives_series(evidence):
    return evidence.pairs["doc_id"]

def everything(evidence):
    return pl.lit(True)

BREAKS = Annotator(name="breaks", function=breaks, applies=everything, kind="binary")
SERIES = Annotator(name="series", function=gives_series, applies=everything, kind="binary")
APPLIES = Annotator(name="applies", function=breaks, applies=lambda e: pl.col("nosuch") > 0, kind="binary")
"""


# --- where the code of a user fails, and what is said ---

MEASURES = """
from erag_ray.measures.lists import Measure

def first(lists):
    return lists.labels[:, :1]

FIRST = Measure(name='first', function=first, uses_ideal=False, takes=frozenset({'binary'}))
"""

CODE: dict[str, tuple[str, Callable[[str], dict[str, object]]]] = {
    "my_readers": (READERS, lambda name: {"reader": ReaderConfig(kind=name)}),
    "my_scores": (SCORES, lambda name: {"score": name}),
    "my_annotators": (ANNOTATORS, lambda name: {"annotators": ["erag", name]}),
    "my_measures": (MEASURES, lambda name: {"measures": [name], "annotators": ["erag"]}),
    "my_retrievers": (
        RETRIEVERS,
        lambda name: {"runs": {}, "retrievers": {"needs": RetrieverConfig(kind=name)}},
    ),
}
"""Module -> its text, and the keys of a job that names something in it."""
KEPT = "; responses and sealed tables so far are kept"
FAULTS = [
    ("my_readers:NoInit", 2, ["reader.kind: my_readers:NoInit: KeyError: 'API_KEY' (my_readers.py:7)"]),
    ("my_readers:NoSuper", 2, ["TypeError: its __init__ does not call super().__init__(config) (my_readers.py:9)"]),
    ("my_readers:NoIdentity", 2, ["my_readers:NoIdentity: fingerprint_fields: OSError: the server does not say which "
                                  "model it has (my_readers.py:15)"]),
    ("my_readers:NoRun", 2, ["TypeError: Can't instantiate abstract class NoRun "]),
    ("my_readers:Unstable", 2, ["fingerprint_fields: TypeError: object has no stable form (my_readers.py:21)"]),
    ("my_readers:NoCheck", 2, ["AttributeError: 'Form' object has no attribute 'max_length' (my_readers.py:27)"]),
    ("my_readers:NoResources", 2, ["resources: AttributeError: 'NoResources' object has no attribute 'gpus' "
                                   "(my_readers.py:31)"]),
    ("my_retrievers:Needs", 2, ["retrievers.needs: TypeError: ", "'url' (my_retrievers.py:25)"]),
    ("my_scores:NAN", 1, ["18 of 18 scores are errors", "score nan, query q1, output 'Marn': ValueError: score 'nan' "
                          "returned nan; allowed: a number in [0, 1] (my_scores.py:13)"]),
    ("my_annotators:BREAKS", 1, ['annotators: my_annotators:BREAKS: ColumnNotFoundError: "no_such_column" not found',
                                 f"(my_annotators.py:6){KEPT}"]),
    ("my_annotators:APPLIES", 1, ["annotators: my_annotators:APPLIES: ColumnNotFoundError: ", KEPT]),
    ("my_annotators:SERIES", 2, ["annotator 'my_annotators:SERIES' returned a Series, not a polars DataFrame"]),
    ("my_measures:FIRST", 1, ["measures: my_measures:FIRST: ValueError: returned an array of shape (6, 1), not (6, ",
                              ") (my_measures.py:4)"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "code", "words"), FAULTS)
def test_a_fault_of_the_users_code_ends_the_job_by_its_line(
    tiny: Tiny,
    job: RunJob,
    reads_here: list[int],
    module: Callable[..., pathlib.Path],
    name: str,
    code: int,
    words: list[str],
) -> None:
    file, _ = name.split(":")
    text, keys = CODE[file]
    module(file, text)
    ended, said = job("compare", tiny.with_config(**keys(name)))
    assert ended == code
    assert all(one in said for one in words), said
    assert not TableStore(tiny.config.out).is_sealed(MEANS)
    if file in ("my_readers", "my_retrievers"):
        assert reads_here == [], "what cannot be made is told before anything is read"


# --- the examples of the guides ---

EXAMPLES = {name: text for name, text in files_of("python").items() if name.startswith("my_")}
MINE = re.compile(r"erag-ray compare --config nq\.yaml (.*\bmy_\w+:.*)")
COMMANDS = [found[1] for command in job_commands() if (found := MINE.fullmatch(command))]


def test_the_guides_have_an_example_of_each_kind() -> None:
    kinds = ("scores", "readers", "annotators", "retrievers", "search")
    assert set(EXAMPLES) == {f"my_{kind}.py" for kind in kinds}
    assert len(COMMANDS) == 4
    assert all(len([line for line in text.splitlines() if line]) <= 13 for text in EXAMPLES.values())


@pytest.mark.long
@pytest.mark.parametrize("options", COMMANDS)
def test_the_examples_of_the_guides_run_as_they_stand(
    tiny: Tiny,
    reads_here: list[int],
    module: Callable[..., pathlib.Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: str,
) -> None:
    for name, text in EXAMPLES.items():
        module(name.removesuffix(".py"), text)
    _, *arguments = job_command(tiny.config, tiny.folder)
    monkeypatch.setattr("sys.argv", [*arguments, *shlex.split(options)])
    runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
    labels, lists = table(tiny, LABELS), set(table(tiny, UTILITY)["run_id"])
    if "my_readers" in options:
        assert labels["reader"].str.starts_with("FirstTitle-").any()
        short = labels.filter(annotator="my_annotators:SHORT", query_id="q1")
        # their texts have 25, 39, 14 and 25 characters
        assert dict(short.select("doc_id", "label").rows()) == {"d1": 0.0, "d2": 0.0, "d11": 1.0, "d12": 0.0}
        assert len([*pathlib.Path(tiny.config.out, "trec").glob("*-my_annotators_SHORT.qrels")]) == 1
    if "my_retrievers" in options:
        assert "shortest" in lists
    if "my_search" in options:
        assert "mine" in lists
    if "my_scores" in options:
        assert set(labels["score"]) == {"", "my_scores:STARTS_RIGHT"}
    assert set(LISTS) - {"third"} <= lists

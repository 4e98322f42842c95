"""The page in a real browser, opened from disk: what is seen, clicked, linked and printed, and that nothing leaves."""

import dataclasses
import pathlib
import shutil
from collections.abc import Iterator
from typing import Literal

import polars as pl
import pytest
from made_up_folder import HOSTILE, READER, Size, report_of, write_folder
from playwright.sync_api import Browser, Page, expect, sync_playwright

from erag_ray.analyses.parts.model import Column, Figure, Format, Table, Value
from erag_ray.measures.scores import SCORES
from erag_ray.prompts.prompt import as_text
from erag_ray.prompts.request import Example, Passage, Prompt
from erag_ray.report.page.questions import QuestionOptions, load_questions
from erag_ray.report.page.write import write_page
from erag_ray.store.schemas import CORPUS, LABELS, QUERIES, RUNS, UTILITY
from erag_ray.store.tables import TableStore

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium"),
]
MISSING = "\u2013"
READY = "html[data-ready={}]"
PROMPT = Prompt(
    template="{{}} {passages}\n\nQ: {question} ",
    without_passages="Q: {question}",
    passage="[{rank}] {title}: {text}",
    untitled="[{rank}] {text}",
    separator="\n",
    system="Answer {briefly}.",
    examples=(Example("who {x}?", "Ada", (Passage("t", "Ada  did"),)),),
    one_line=True,
)
PROMPTS = {"nq": dataclasses.asdict(PROMPT) | {"is_for_each": False, "max_tokens": 99}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # in a container there may be no user namespaces for the sandbox
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


class Visit:
    """A page that is open, with all that it asked for and all that went wrong."""

    def __init__(self, browser: Browser, path: str, *, scheme: str = "light", width: int = 1280) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.url = f"file://{path}"
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda one: self.problems.append(one.text) if one.type == "error" else None)
        self.page.on("dialog", lambda dialog: (self.problems.append(dialog.message), dialog.dismiss()))

    def open(self, view: str = "report", fragment: str = "") -> Page:
        self.page.goto(self.url + fragment)
        self.page.wait_for_selector(READY.format(view))
        return self.page


def table_of() -> Table:
    """Runs whose scores are in another order as texts than as numbers."""
    columns = (
        Column("run", Format.NAME),
        Column("score", Format.COUNT, "how many"),
        Column("ends", Format.TEXT),
    )
    numbers = [(f"run-{number}", number * 7 % 30 * 40, f"[{number / 10 - 1:.3f}, 2]") for number in range(30)]
    rows = [tuple(map(Value, row)) for row in numbers]
    missing = (Value(value="nothing"), Value(reason="fewer than two questions"), Value())
    return Table(name="runs", title="Runs", caption="All of them.", columns=columns, rows=(missing, *rows))


def figure() -> Figure:
    data = pl.DataFrame(
        {"depth": [5, 10] * 2, "score": [0.1, 0.4, 2e-5, 0.3], "run": ["bm25"] * 2 + ["dense"] * 2}
    )
    return Figure(
        name="curve", title="Utility over depth", data=data, mark="line", x="depth", y="score", color="run"
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with a table, a figure and 120 questions in several files."""
    folder = write_folder(str(tmp_path_factory.mktemp("page")), Size(num_questions=120))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("erag_ray.report.page.write.SHARD_BYTES", 200_000)
        patch.setattr("erag_ray.report.page.payload.MAX_FIGURE_ROWS", 3)
        # blanks at the end of a question are in its prompt, those of the template are not
        spaced = pl.when(query_id="q8").then(pl.col("question") + "  ").otherwise("question")
        folder.write(folder.read(QUERIES).with_columns(question=spaced), QUERIES)
        questions = load_questions(folder, QuestionOptions(depth=5, prompts=PROMPTS, num_answers=3))
        return write_page(folder.folder, report_of("Which?", table_of(), figure()), questions)


@pytest.fixture
def visit(browser: Browser, path: str) -> Iterator[Visit]:
    """Opened pages ask for nothing but files beside them, and nothing goes wrong in them."""
    opened = Visit(browser, path)
    yield opened
    folder = f"file://{pathlib.Path(path).parent}/"
    assert opened.requests
    assert [url for url in opened.requests if not url.startswith(folder)] == []
    assert opened.problems == []
    opened.page.context.close()


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"[data-part=runs] tbody tr td:nth-child({number})").all_inner_texts()


# --- the report ---


@pytest.mark.long
def test_the_verdict_comes_first(visit: Visit) -> None:
    page = visit.open()
    expect(page.locator("#verdict .says")).to_have_text("bm25 serves the reader best")
    expect(page.locator("#verdict .says")).to_be_in_viewport()
    expect(page.locator("#verdict")).to_contain_text("412 questions would be needed")


@pytest.mark.long
def test_a_table_sorts_by_value_and_what_is_missing_stays_last(visit: Visit) -> None:
    page = visit.open()
    head = page.locator("[data-part=runs] thead button").nth(1)
    head.click()
    page.locator("[data-part=runs] button.more").click()
    found = column(page, 2)
    assert [int(text.replace(",", "")) for text in found[:-1]] == [
        number * 40 for number in reversed(range(30))
    ]
    assert found[-1].startswith(MISSING)
    head.click()
    expect(page.locator("[data-part=runs] th").nth(1)).to_have_attribute("aria-sort", "ascending")
    assert column(page, 2)[:3] == ["0", "40", "80"]
    assert column(page, 2)[-1].startswith(MISSING)
    expect(page.locator("[data-part=runs] .reasons")).to_have_text("fewer than two questions")
    page.locator("[data-part=runs] thead button").nth(2).click()
    assert column(page, 3) == [*(f"[{number / 10 - 1:.3f}, 2]" for number in range(30)), MISSING]


@pytest.mark.long
def test_a_table_is_filtered_and_the_link_leads_back_to_it(visit: Visit, browser: Browser) -> None:
    page = visit.open()
    page.locator("[data-part=runs] input").fill("run-2")
    expect(page.locator("[data-part=runs] tbody tr")).to_have_count(11)
    page.locator("[data-part=runs] thead button").first.click()
    linked = Visit(browser, visit.url.removeprefix("file://"))
    linked.open(fragment=page.evaluate("location.hash"))
    linked.page.locator("[data-part=runs]").scroll_into_view_if_needed()
    expect(linked.page.locator("[data-part=runs] tbody tr")).to_have_count(11)
    assert column(linked.page, 1) == ["run-2", *(f"run-{number}" for number in range(20, 30))]


@pytest.mark.long
def test_a_chart_is_drawn_without_eval_when_it_comes_into_view(visit: Visit) -> None:
    page = visit.open()
    page.locator("[data-part=curve]").scroll_into_view_if_needed()
    expect(page.locator("[data-part=curve] svg")).to_be_visible()
    # two runs, two depths
    assert page.locator("[data-part=curve] svg .mark-symbol.role-mark path").count() == 4
    page.locator("[data-part=curve] summary").click()
    expect(page.locator("[data-part=curve] .numbers tbody tr")).to_have_count(3)
    expect(page.locator("[data-part=curve] .numbers")).to_contain_text("The first 3 of 4 rows")
    # what is not 0 is not shown as 0
    expect(page.locator("[data-part=curve] tbody td").nth(7)).to_have_text("0.000020")


@pytest.mark.long
def test_the_theme_follows_the_system_and_can_be_switched(browser: Browser, path: str) -> None:
    page = Visit(browser, path, scheme="dark").open()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark, light) == ("rgb(20, 23, 27)", "rgb(255, 255, 255)")


# --- questions ---


@pytest.mark.long
def test_a_question_is_found_opened_and_left_by_the_back_button(visit: Visit) -> None:
    page = visit.open()
    page.locator("#to-questions").click()
    expect(page.locator("a.open")).to_have_count(50)
    page.locator("#search").fill("number 77?")
    expect(page.locator("a.open")).to_have_count(1)
    page.locator("a.open").click()
    page.wait_for_selector(READY.format("question"))
    expect(page.locator("#question h1")).to_have_text("Which river crosses the old town number 77?")
    page.go_back()
    page.wait_for_selector(READY.format("questions"))
    expect(page.locator("a.open")).to_have_count(1)
    expect(page.locator("#search")).to_have_value("number 77?")
    page.go_back()
    page.wait_for_selector(READY.format("report"))
    page.go_forward()
    page.wait_for_selector(READY.format("questions"))
    # so does a click on its row
    page.locator("table.questions tbody td.number").first.click()
    page.wait_for_selector(READY.format("question"))
    expect(page.locator("#question h1")).to_have_text("Which river crosses the old town number 77?")


@pytest.mark.long
def test_the_look_at_a_question_shows_all_that_is_known(visit: Visit, path: str) -> None:
    page = visit.open("question", "#view=question&id=q8")
    expect(page.locator("#question h1")).to_have_text("Which river crosses the old town number 8?")
    expect(page.locator(".facts")).to_contain_text("Town 8")
    store = TableStore(str(pathlib.Path(path).parents[1]))
    labels = store.read(LABELS).filter(query_id="q8", doc_id="q8-s0").select("annotator", "label")
    lists = page.locator(".lists .list")
    assert lists.locator("h3").all_inner_texts() == ["bm25", "dense"]
    expect(lists.first.locator(".card")).to_have_count(5)
    first = lists.first.locator(".card").first
    expect(first.locator("h4")).to_have_text("The town of q8-s0")
    expect(first.locator(".gold")).to_have_text("★ gold")
    expect(first).to_contain_text("also dense #5")
    for annotator, label in labels.iter_rows():
        sign = "+" if annotator == "gain" and label > 0 else ""
        expect(first.locator(".label", has_text=annotator).locator("b")).to_have_text(f"{sign}{label:.0f}")
    expect(first.locator(".alone q")).to_have_text("Town 8-s")
    text = store.read(CORPUS).filter(doc_id="q8-s0")["text"].item()
    expect(first.locator(".passage")).to_have_text(text)
    assert set(first.locator("mark").all_inner_texts()) == {"river"}
    expect(page.locator("#question h2").first).to_contain_text("the first of 3 answers")
    outcomes = page.locator(".outcomes tbody tr")
    assert outcomes.locator("th").all_inner_texts() == ["bm25", "dense", "closed book", "gold passages"]
    expect(outcomes.first.locator("q")).to_have_text(["Town 5", "Town 10"])
    expect(outcomes.first.locator(".cell")).to_have_count(2)
    given = store.read(RUNS).filter(pl.col("rank") <= 5, run_id="bm25", query_id="q8").sort("rank")
    texts = given.join(store.read(CORPUS), on="doc_id", maintain_order="left").select("title", "text").rows()
    question = store.read(QUERIES).filter(query_id="q8")["question"].item()
    page.locator(".prompt summary").first.click()
    prompt = as_text(PROMPT, question, [Passage(*row) for row in texts])
    expect(page.locator(".prompt pre").first).not_to_be_empty()
    assert page.locator(".prompt pre").first.text_content() == prompt
    page.locator(".documents a.more").click()
    expect(page.locator(".lists .list").first.locator(".card")).to_have_count(10)


@pytest.mark.long
def test_filters_leave_what_they_name(visit: Visit) -> None:
    page = visit.open("questions", "#view=questions")
    page.get_by_label("Dataset").select_option("nq")
    expect(page.locator("#matches .count")).to_contain_text("60 of 120")
    page.get_by_label("hops").select_option("2")
    expect(page.locator("#matches .count")).to_contain_text("20 of 120")
    page.get_by_label("Cell").select_option(label="only together")
    page.get_by_label("of run").select_option("dense")
    cells = page.locator("table.questions tbody tr td:nth-child(4) .cell").all_inner_texts()
    assert set(cells) == {"only together"}
    page.goto(visit.url + "#view=questions")
    page.get_by_role("button", name="Runs differ most").click()
    expect(page.locator("#matches .count")).to_contain_text("of 120")
    spreads = page.locator("table.questions tbody tr td:nth-child(7)").all_inner_texts()
    assert set(spreads) == {"1"}
    page.get_by_role("button", name="Did harm").click()
    expect(page.locator("table.questions tbody tr .harm").first).to_be_visible()


@pytest.mark.parametrize("sign", [1, -1, 0])
def test_better_harm_and_useful_follow_the_direction_of_the_score(
    browser: Browser, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, sign: Literal[1, -1, 0]
) -> None:
    monkeypatch.setitem(SCORES, "mine", dataclasses.replace(SCORES["exact_match"], name="mine", sign=sign))
    store = write_folder(str(tmp_path), Size(num_questions=40, annotators=("erag",)))
    for schema in (QUERIES, UTILITY, LABELS):
        store.write(store.read(schema).with_columns(score=pl.lit("mine")), schema)
    utility = store.read(UTILITY).filter(pl.col("depth") != 5)
    values = utility.pivot("run_id", index="query_id", values="value")
    gains = pl.col("bm25", "dense") - pl.col("no_passages")
    num_better = values.filter((pl.col("bm25") - pl.col("dense")) * (sign or 1) > 0).height
    num_harmed = values.filter(pl.any_horizontal(gains * sign < 0)).height
    visit = Visit(browser, write_page(store.folder, report_of(), load_questions(store, QuestionOptions())))
    page = visit.open("questions", "#view=questions")
    page.get_by_label("Better with" if sign else "Higher with").select_option(label="bm25")
    expect(page.locator("#matches .count")).to_contain_text("40 questions; scores with 10 documents")
    expect(page.locator("#matches .sign.harm")).to_have_count(num_harmed)
    page.get_by_label("than with").select_option(label="dense")
    expect(page.locator("#matches .count")).to_contain_text(f"{num_better} of 40 questions")
    assert bool(page.locator("#matches .high").count()) == (sign > 0)
    page.locator("a.open").first.click()
    page.wait_for_selector(READY.format("question"))
    assert bool(page.locator(".card.useful, .label.good, .value.high").count()) == (sign > 0)
    assert visit.problems == []


def test_a_table_can_be_saved_for_a_spreadsheet(browser: Browser, tmp_path: pathlib.Path) -> None:
    columns = (Column("run", Format.NAME), Column("score", Format.NUMBER))
    rows = (
        (Value(value="=SUM(A1)"), Value(0.5, 0.25, 0.75, note="n=4")),
        (Value(value='a "b", c'), Value(-1.5)),
        (Value(value="nothing"), Value(reason="why")),
    )
    table = Table(name="runs", title="Runs", columns=columns, rows=rows)
    store = TableStore(str(tmp_path / "out"))
    opened = Visit(browser, write_page(store.folder, report_of("Which?", table), None))
    page = opened.open()
    with page.expect_download() as saved:
        page.locator("[data-part=runs] button.csv").click()
    assert saved.value.suggested_filename == "runs.csv"
    text = pathlib.Path(saved.value.path()).read_text(encoding="utf-8-sig")
    assert text.splitlines() == [
        "run,score,score interval,score note",
        '\'=SUM(A1),0.5,"[0.250, 0.750]",n=4',
        '"a ""b"", c",-1.5,,',
        "nothing,,,",
    ]
    assert opened.problems == []


def test_keys_move_open_and_leave(visit: Visit) -> None:
    page = visit.open("questions", "#view=questions")
    for key in ("j", "j", "ArrowDown", "k"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.textContent").endswith("number 1?")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector(READY.format("question"))
    page.keyboard.press("j")
    expect(page.locator("#question h1")).to_contain_text("number 2?")
    page.keyboard.press("Escape")
    page.wait_for_selector(READY.format("questions"))
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()


@pytest.mark.long
def test_gold_answers_are_marked_in_scripts_without_spaces(browser: Browser, tmp_path: pathlib.Path) -> None:
    store = write_folder(str(tmp_path), Size(num_questions=1))
    text = "수도는 서울이다. 首都は東京です, 15명, 5명! Apple사 riverbank"
    store.write(store.read(CORPUS).with_columns(text=pl.lit(text)), CORPUS)
    answers = pl.lit(["서울", "東京", "5명", "Apple", "river", "."])
    store.write(store.read(QUERIES).with_columns(answers=answers), QUERIES)
    path = write_page(store.folder, report_of("Which?"), load_questions(store, QuestionOptions()))
    page = Visit(browser, path).open("question", "#view=question&id=q0")
    expect(page.locator(".card").first.locator("mark")).to_have_text(["서울", "東京", "5명", "Apple"])


# --- bad input ---


@pytest.mark.long
def test_hostile_texts_are_shown_as_texts(browser: Browser, tmp_path: pathlib.Path) -> None:
    store = write_folder(str(tmp_path), Size(num_questions=1, runs=(HOSTILE, "dense")))
    corpus = store.read(CORPUS).with_columns(text=pl.lit(HOSTILE), title=pl.lit(HOSTILE))
    store.write(corpus, CORPUS)
    path = write_page(store.folder, report_of(HOSTILE, table_of()), load_questions(store, QuestionOptions()))
    visit = Visit(browser, path)
    page = visit.open("question", "#view=question&id=q0")
    assert page.locator(".card .passage").first.evaluate("node => node.textContent") == HOSTILE
    assert page.locator(".card h4").first.evaluate("node => node.textContent") == HOSTILE
    assert page.locator(".list h3").first.evaluate("node => node.textContent") == HOSTILE
    assert page.title().split() == HOSTILE.split()
    assert page.locator("img").count() == 0
    assert visit.problems == []
    assert all(url.startswith("file://") for url in visit.requests)


@pytest.mark.long
def test_200_runs_and_one_question_without_a_useful_document(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    runs = tuple(f"run-{number}" for number in range(200))
    store = write_folder(str(tmp_path), Size(num_questions=1, runs=runs), without=(LABELS,))
    label = pl.lit(0.0)
    pairs = store.read(CORPUS).select("doc_id").unique()
    named = {"reader": READER, "score": "exact_match", "annotator": "erag", "query_id": "q0"}
    labels = pairs.with_columns(label=label, **{name: pl.lit(value) for name, value in named.items()})
    store.write(labels.select(LABELS.columns.names), LABELS)
    path = write_page(store.folder, report_of(), load_questions(store, QuestionOptions()))
    visit = Visit(browser, path, width=390)
    page = visit.open("question", "#view=question&id=q0")
    expect(page.locator(".lists .list")).to_have_count(3)
    expect(page.locator(".label.good")).to_have_count(0)
    page.get_by_text("Show all 200 runs").click()
    page.get_by_label("run-150", exact=True).check()
    expect(page.locator(".lists .list h3")).to_have_text(["run-0", "run-1", "run-2", "run-150"])
    # what is wide scrolls inside the page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.problems == []


def test_one_file_works_alone(browser: Browser, tmp_path: pathlib.Path) -> None:
    store = write_folder(str(tmp_path / "out"), Size(num_questions=3))
    questions = load_questions(store, QuestionOptions())
    path = write_page(store.folder, report_of("One", figure()), questions, single_file=True)
    alone = shutil.move(path, tmp_path / "mailed.html")
    visit = Visit(browser, str(alone))
    page = visit.open()
    expect(page.locator("[data-part=curve] svg")).to_be_visible()
    page.goto(visit.url + "#view=question&id=q2")
    expect(page.locator("#question h1")).to_have_text("Which river crosses the old town number 2?")
    assert visit.requests == [visit.url]
    assert visit.problems == []


def test_a_missing_file_of_questions_is_named(browser: Browser, tmp_path: pathlib.Path) -> None:
    store = write_folder(str(tmp_path), Size(num_questions=2))
    path = write_page(store.folder, report_of(), load_questions(store, QuestionOptions()))
    shutil.rmtree(pathlib.Path(path).parent / "questions")
    page = Visit(browser, path).open("question", "#view=question&id=q0")
    expect(page.locator("#question [role=alert]")).to_contain_text(
        "questions/0000.js is missing beside index.html"
    )


# --- paper ---


@pytest.mark.long
def test_it_prints_to_a_pdf(visit: Visit) -> None:
    page = visit.open()
    page.locator("[data-part=curve]").scroll_into_view_if_needed()
    expect(page.locator("[data-part=curve] svg")).to_be_visible()
    assert page.pdf().startswith(b"%PDF-")
    page.emulate_media(media="print")
    expect(page.locator(".bar")).to_be_hidden()
    expect(page.locator("#verdict")).to_be_visible()
    page.goto(visit.url + "#view=question&id=q0")
    expect(page.locator(".documents")).to_be_visible()
    assert page.pdf().startswith(b"%PDF-")

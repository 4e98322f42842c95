"""Credit inside the list through the whole path: lists that are asked, tables that follow, what the report shows."""

from typing import Any

import polars as pl
import pytest
from tiny import Tiny, make_tables, table, tables_text, work_of

from erag_ray.extras.credit.agreement import CREDIT_SHARES
from erag_ray.extras.credit.lists import CREDITS
from erag_ray.extras.credit.orders import ORDER_EFFECTS
from erag_ray.report.page.questions import QuestionOptions, load_questions
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.store.tables import TableStore

ALL: dict[str, Any] = {
    "credits": ["leave_one_out", "marginal", "shapley"],
    "orders": ["reversed", "unrelated_before"],
}
DEPTH = 3


@pytest.mark.long
def test_a_job_without_the_keys_asks_and_makes_nothing_more(tiny: Tiny, reads_here: list[int]) -> None:
    plan = make_tables(tiny)
    assert not {"credits", "orders"} & set(work_of(plan))
    assert not (tiny.folder / "out" / CREDITS.name).exists()
    later = make_tables(tiny.with_config(**ALL))
    work = work_of(later)
    # single documents and whole lists are counted where they are asked anyhow
    assert work["credits"][2] == work["credits"][0] > 0
    assert work["pairs"][2] == work["lists"][2] == 0
    labels, utility = table(tiny, LABELS), table(tiny, UTILITY)
    assert labels.height > 0
    assert table(tiny.with_config(**ALL), UTILITY).equals(utility)


@pytest.mark.long
def test_the_report_shows_credits_and_orders_where_they_were_asked_for(compared: Tiny) -> None:
    plain = tables_text(compared)
    make_tables(credited := compared.with_config(**ALL, slices=["known"]))
    text = tables_text(credited)
    for words in ("within lists", "by eRAG's label and their credit", "when the list is changed"):
        assert (words in text, words in plain) == (True, False)
    # over the lists in which an annotator's labels and the credits vary
    assert "| bad | 3 | leave\\_one\\_out | 0.750 \\[-0.936, 0.999\\] n=2 | -0.500 n=1 |" in text
    shares = table(credited, CREDIT_SHARES, run_id="good", slice="", credit="leave_one_out")
    assert shares["share"].sum() == pytest.approx(1.0)
    # q1: d2 spoils the list, and is useless alone
    assert shares.filter(effect="hurts_in_company")["num_positive"].item() >= 1
    effects = table(credited, ORDER_EFFECTS, run_id="good", depth=DEPTH)
    # ties go to the first passage, so that the echo reader may see the order
    assert effects.filter(order="reversed")["num_queries"].item() == 6


def test_a_question_of_the_page_has_the_credits_of_its_documents(tiny: Tiny, reads_here: list[int]) -> None:
    make_tables(credited := tiny.with_config(**ALL))
    questions = load_questions(TableStore(credited.config.out), QuestionOptions())
    rows = table(credited, CREDITS).filter(query_id="q1").drop_nulls("value")
    record = next(iter(questions))
    seen = {
        (questions.runs[run], credit, record["documents"]["ids"][document], value)
        for run, credits in record["in_lists"].items()
        for credit, values in credits.items()
        for document, value in values.items()
    }
    expected = rows.select("run_id", "credit", "doc_id", pl.col("value").round(4)).rows()
    assert (record["id"], seen) == ("q1", set(expected))
    make_tables(tiny.with_config(out=f"{credited.config.out}-plain"))
    plain = load_questions(TableStore(f"{credited.config.out}-plain"), QuestionOptions())
    assert next(iter(plain))["in_lists"] == {}

"""Several facts: their labels, Coverage and alpha-nDCG, by hand, by brute force and through a whole comparison."""

import json

import numpy as np
import pytest
from tiny import Tiny, make_tables, num_reader_calls, table

from erag_ray.analyses.columns import PER_QUERY
from erag_ray.analyses.contrasts import CONTRASTS
from erag_ray.inputs.stage import prepare
from erag_ray.measures.lists import FactLists, alpha_ndcg
from erag_ray.store.schemas import FACT_LABELS, LABELS
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError


def with_facts(tiny: Tiny, facts: dict[str, object], **config: object) -> Tiny:
    """The tiny comparison, with ``answers_all`` in these records."""
    records = [json.loads(line) for line in tiny.queries.read_text().splitlines()]
    for record in records:
        if record["id"] in facts:
            record["answers_all"] = facts[record["id"]]
    tiny.queries.write_text("".join(json.dumps(record) + "\n" for record in records))
    return tiny.with_config(annotators=["erag", "erag_facts"], **config)


FACTS: dict[str, object] = {
    "q1": ["Ada Brunner", ["Marn", "the marn"]],
    "q2": [["Orla"], "Tessel", "Nowhere"],
}


# --- measures ---


def test_alpha_ndcg_of_the_worked_example_of_its_paper() -> None:
    # Clarke et al., SIGIR 2008, section 5.1 (Table 2): documents a to j with the nuggets 85.1 to 85.6
    nuggets = [{2, 4}, {2}, {2}, {}, {6, 1}, {1}, {3}, {1}, {}, {}]
    labels = np.array([[[float(fact in document) for fact in range(1, 7)] for document in nuggets]])
    gains = [2, 1 / 2, 1 / 4, 0, 2, 1 / 2, 1, 1 / 4, 0, 0]
    # the ideal order there is a-e-g-b-f-c-h-i-j-d
    ideal = [2, 2, 1, 1 / 2, 1 / 2, 1 / 4, 1 / 4, 0, 0, 0]
    for cutoff in (1, 3, 5, 10):
        values = alpha_ndcg(FactLists(labels=labels, ideal=labels))
        discounts = np.log2(np.arange(2, cutoff + 2))
        expected = sum(gains[:cutoff] / discounts) / sum(ideal[:cutoff] / discounts)
        assert values[0, cutoff - 1] == pytest.approx(expected)


# --- a whole comparison ---


def test_a_job_without_facts_asks_as_much_and_has_the_same_tables(tiny: Tiny, reads_here: list[int]) -> None:
    plain = tiny.with_config(annotators=["erag"])
    make_tables(plain)
    store, schemas = TableStore(plain.config.out), (LABELS, PER_QUERY, CONTRASTS)
    before = [(table(plain, schema), store.manifest(schema)["parts"]) for schema in schemas]
    assert not store.is_sealed(FACT_LABELS)
    make_tables(with_facts(tiny, FACTS))
    assert num_reader_calls(tiny) == 0
    make_tables(plain)
    for schema, (rows, files) in zip(schemas, before, strict=True):
        assert table(plain, schema).equals(rows)
        assert store.manifest(schema)["parts"] == files


def test_facts_that_change_are_labelled_again(tiny: Tiny, reads_here: list[int]) -> None:
    make_tables(with_facts(tiny, FACTS))
    make_tables(with_facts(tiny, {"q1": ["Ada Brunner", "Nobody"]}))
    labels = table(tiny, FACT_LABELS, query_id="q1", fact=2)
    assert labels.height
    assert labels["label"].sum() == 0


# --- input ---


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"queries.jsonl:1: query 'q1': answers_all is \[\]; it must be a list of facts"),
        ("Ann", "answers_all is 'Ann'; it must be a list of facts"),
        (["Ann", 7], "fact 2 of answers_all is 7; it must be a text, or a list of accepted forms"),
        (["Ann", []], r"fact 2 of answers_all is \[\]"),
        ([["Ann", " "]], "fact 1 of answers_all is .*without blank ones"),
    ],
)
def test_wrong_facts_are_refused_with_their_line(tiny: Tiny, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(with_facts(tiny, {"q1": value}).config)


def test_questions_without_facts_are_refused(tiny: Tiny) -> None:
    message = "erag_facts: no question lists several facts. Give the questions a field answers_all"
    with pytest.raises(InputError, match=message):
        prepare(with_facts(tiny, {}).config)


def test_facts_of_another_field_are_read_from_it(tiny: Tiny) -> None:
    record = {"id": "q1", "question": "who", "answers": ["Ann"], "first": ["Ann", "Bob"], "second": ["Cy"]}
    tiny.queries.write_text(json.dumps(record))
    for field in ("first", "second"):
        keys = {"question_fields": {"answers_all": field}, "annotators": ["erag", "erag_facts"]}
        facts = prepare(tiny.with_config(**keys).config).facts
        assert facts["answers"].to_list() == [[name] for name in record[field]]


def test_notes_say_how_many_questions_have_no_facts_or_one(tiny: Tiny) -> None:
    notes = prepare(with_facts(tiny, {**FACTS, "q3": ["1874"]}).config).notes
    assert any("no Coverage and alpha-nDCG: 3 of 6" in note for note in notes)
    assert any("Coverage says whether a document gives it: 1 of 3" in note for note in notes)


def test_without_answers_all_forms_of_all_facts_are_accepted(tiny: Tiny) -> None:
    for name, fields in (("answers_all", {}), ("answers", {"answers_all": "answers"})):
        record = {"id": "q1", "question": "who", name: ["Ann", ["Bob", "Robert"]]}
        tiny.queries.write_text(json.dumps(record) + "\n")
        inputs = prepare(tiny.with_config(annotators=["erag_facts"], question_fields=fields).config)
        assert inputs.queries["answers"].to_list() == [["Ann", "Bob", "Robert"]]
        assert inputs.facts["answers"].to_list() == [["Ann"], ["Bob", "Robert"]]

"""The generated world: the same by seed, true to its own facts, hard where it says so, and in KILT's formats."""

import dataclasses
import functools
import json
import pathlib
import re
import tracemalloc
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from input_files import without_errors

from erag_ray.data.datasets.queries import load_queries
from erag_ray.extras.world import files
from erag_ray.extras.world.config import WorldConfig
from erag_ray.extras.world.district import District, make_district
from erag_ray.extras.world.pages import Page, make_pages, state
from erag_ray.extras.world.tasks import TASKS, make_records
from erag_ray.extras.world.words import RELATIONS, is_dev_name, surname

SMALL = WorldConfig(num_passages=700, num_processes=1)


@functools.cache
def made(number: int, **changes: float) -> tuple[District, list[Page]]:
    config = dataclasses.replace(SMALL, **changes)
    district = make_district(config, number)
    return district, make_pages(config, district)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("world")
    files.write_world(dataclasses.replace(SMALL, out=str(folder)))
    return folder


def records(number: int, task: str, count: int = 40) -> list[dict[str, Any]]:
    return make_records(SMALL, *made(number), task, count)


def first_answer(record: dict[str, Any]) -> str:
    answer: str = record["output"][0]["answer"]
    return answer


def test_the_same_settings_give_the_same_files_whatever_the_processes(
    world: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    files.write_world(dataclasses.replace(SMALL, out=str(tmp_path), num_processes=2))
    names = sorted(path.name for path in world.iterdir() if path.is_file())
    assert names == sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    for name in names:
        assert (world / name).read_bytes() == (tmp_path / name).read_bytes()


def test_another_seed_is_another_world() -> None:
    assert files.district_lines(SMALL, 0) != files.district_lines(dataclasses.replace(SMALL, seed=1), 0)


def test_a_finished_world_is_left_alone_and_other_settings_make_it_anew(tmp_path: pathlib.Path) -> None:
    config = dataclasses.replace(SMALL, num_passages=320, out=str(tmp_path))
    counts = files.write_world(config)
    before = (tmp_path / files.KNOWLEDGE_SOURCE).stat().st_mtime_ns
    assert files.write_world(config) == counts
    assert (tmp_path / files.KNOWLEDGE_SOURCE).stat().st_mtime_ns == before
    files.write_world(dataclasses.replace(config, seed=5))
    assert (tmp_path / files.KNOWLEDGE_SOURCE).stat().st_mtime_ns != before


def test_a_world_cut_short_is_not_taken_for_a_finished_one(tmp_path: pathlib.Path) -> None:
    config = dataclasses.replace(SMALL, num_passages=320, out=str(tmp_path))

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_world(config, stop)
    assert not (tmp_path / "manifest.json").exists()
    assert not (tmp_path / files.KNOWLEDGE_SOURCE).exists()
    assert files.write_world(config)[files.KNOWLEDGE_SOURCE] > 0


def test_pages_are_records_of_kilts_knowledge_source(world: pathlib.Path) -> None:
    pages = [json.loads(line) for line in (world / files.KNOWLEDGE_SOURCE).read_text().splitlines()]
    ids = [page["wikipedia_id"] for page in pages]
    assert len(set(ids)) == len(ids)
    assert len(pages) == pytest.approx(SMALL.num_passages, rel=0.1)
    for page in pages:
        assert page["text"][0] == page["wikipedia_title"]
        assert all(isinstance(paragraph, str) and paragraph for paragraph in page["text"])


def test_the_task_files_load_as_datasets_with_their_own_scores(world: pathlib.Path) -> None:
    loaded = without_errors(load_queries, [str(world / files.file_name(task, dev=True)) for task in TASKS])
    scores = dict(loaded.queries.select("dataset", "score").unique().iter_rows())
    spans = dict.fromkeys(["nq", "triviaqa", "hotpotqa"], "exact_match")
    assert scores == {**spans, "fever": "accuracy", "wow": "token_f1"}
    assert loaded.provenance["query_id"].n_unique() == loaded.queries.height


@pytest.mark.parametrize("task", TASKS)
def test_provenance_points_at_the_sentence(task: str) -> None:
    pages = {page.page_id: files.page_record(page) for page in made(0)[1]}
    for record in records(0, task):
        for source in record["output"][0]["provenance"]:
            page = pages[source["wikipedia_id"]]
            assert source["title"] == page["wikipedia_title"]
            paragraph = page["text"][source["start_paragraph_id"]]
            told = paragraph[source["start_character"] : source["end_character"]]
            assert [told] == source["meta"]["evidence_span"]


def test_the_evidence_tells_the_answer() -> None:
    for task in ("nq", "wow"):
        for record in records(0, task):
            (source,) = record["output"][0]["provenance"]
            evidence = source["meta"]["evidence_span"][0]
            shorter, longer = sorted((first_answer(record), evidence), key=len)
            assert shorter in longer
    for record in records(0, "hotpotqa"):
        first, last = record["output"][0]["provenance"]
        assert first["wikipedia_id"] != last["wikipedia_id"]
        assert first_answer(record) in last["meta"]["evidence_span"][0]


def test_claims_are_true_or_false_as_the_facts_are() -> None:
    district, _ = made(0)
    found = records(0, "fever", 200)
    labels = Counter(map(first_answer, found))
    assert set(labels) == {"SUPPORTS", "REFUTES"}
    assert 0.35 < labels["SUPPORTS"] / len(found) < 0.65
    true = {
        state(template, subject, fact.object.name)
        for fact in district.facts
        for template in RELATIONS[fact.relation].sentences
        for subject in (fact.subject.reference, fact.subject.variant)
    }
    for record in found:
        assert (record["input"] in true) == (first_answer(record) == "SUPPORTS"), record["input"]


def test_a_described_answer_is_the_only_one_of_its_kind_in_the_district() -> None:
    district, _ = made(0)
    for record in records(0, "triviaqa"):
        clauses = record["input"]
        named = [one for one in district.entities if one.name == first_answer(record)]
        assert named
        assert not any(re.search(rf"(?<!\w){re.escape(one.name)}(?!\w)", clauses) for one in named)
        assert [entry["answer"] for entry in record["output"]] == [named[0].name, *named[0].aliases]


def test_no_name_of_a_dev_district_is_found_in_a_train_district() -> None:
    """Names as the questions and answers have them, in any world."""
    other = dataclasses.replace(SMALL, seed=7)
    dev = {one.name for number in (4, 9) for one in make_district(SMALL, number).entities}
    train = {one.name for number in (0, 1, 2, 3) for one in make_district(other, number).entities}
    assert all(map(is_dev_name, dev))
    assert not any(map(is_dev_name, train))


@pytest.mark.parametrize("fraction", [SMALL.namesake_fraction, 0.95])
def test_name_sakes_share_their_name_and_not_their_occupation(fraction: float) -> None:
    for number in range(10):
        district, _ = made(number, namesake_fraction=fraction)
        people = [one for one in district.entities if one.kind == "person"]
        by_name = Counter(one.name for one in people)
        assert max(by_name.values()) > 1
        assert len({(one.name, one.occupation) for one in people}) == len(people)


def test_facts_are_told_away_from_their_gold_page_and_answers_about_somebody_else() -> None:
    district, pages = made(0)
    assert len({(id(fact.subject), fact.relation) for fact in district.facts}) == len(district.facts)
    away = [telling.fact for page in pages for telling in page.others]
    assert away
    assert all(telling.fact.subject is not page.subject for page in pages for telling in page.others)
    objects = Counter(fact.object.name for fact in district.facts)
    assert max(objects.values()) > 3


@pytest.mark.parametrize(("mean", "most"), [(0.0, 0), (6.0, 20)])
def test_the_number_of_side_facts_follows_the_setting(mean: float, most: int) -> None:
    _, pages = made(0, side_facts=mean, own_fraction=1.0)
    found = [len(page.others) for page in pages]
    assert max(found) <= most
    assert sum(found) / len(found) == pytest.approx(mean, rel=0.25)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_every_fact_is_told_and_a_share_of_them_on_the_page_of_its_subject(share: float) -> None:
    district, pages = made(0, own_fraction=share, side_facts=0.0)
    own = [telling.fact for page in pages for telling in page.statements]
    elsewhere = [(page.subject, telling.fact) for page in pages for telling in page.others]
    assert sorted(map(id, [*own, *(fact for _, fact in elsewhere)])) == sorted(map(id, district.facts))
    assert len(own) / len(district.facts) == pytest.approx(share, abs=0.1)
    assert all(fact.subject is not subject for subject, fact in elsewhere)


def test_a_gold_page_is_any_of_those_that_tell_the_fact() -> None:
    _, pages = made(0)
    subjects = {page.page_id: page.subject for page in pages}
    about = {telling.sentence: telling.fact.subject for page in pages for telling in page.others}
    elsewhere = 0
    for record in records(0, "nq", 100):
        (source,) = record["output"][0]["provenance"]
        (sentence,) = source["meta"]["evidence_span"]
        subject = subjects[source["wikipedia_id"]]
        elsewhere += about.get(sentence, subject) is not subject
    assert 20 < elsewhere < 80


def test_without_variants_every_question_uses_the_words_of_the_page() -> None:
    district, pages = made(0, variant_fraction=0.0)
    variants = {one.variant for one in district.entities if one.kind == "person"}
    config = dataclasses.replace(SMALL, variant_fraction=0.0)
    asked = make_records(config, district, pages, "nq", 40)
    assert not any(variant in record["input"] for record in asked for variant in variants)


def test_sentences_read_as_sentences() -> None:
    for number in range(3):
        for page in made(number)[1]:
            for telling in (*page.statements, *page.others):
                assert re.fullmatch(r"[A-Z][^{}]*\.", telling.sentence), telling.sentence
                assert "  " not in telling.sentence
                assert telling.fact.object.name in telling.sentence


@given(st.integers(1, 400), st.integers(1, 500), st.integers(2, 7))
def test_the_largest_number_of_questions_is_met_evenly(districts: int, most: int, every: int) -> None:
    config = WorldConfig(num_passages=64 * districts, dev_every=every, max_questions=most)
    for dev in (False, True):
        counts = [
            files.num_questions(config, n) for n in range(config.num_districts) if config.is_dev(n) is dev
        ]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == min(most, int(config.questions_per_district * len(counts)))


@settings(max_examples=20)
@given(st.integers(0, 30_000))
def test_surnames_of_different_numbers_differ(number: int) -> None:
    assert surname(number) != surname(Random(number).randrange(number + 1, 31_000))


def test_memory_does_not_grow_with_the_number_of_districts(tmp_path: pathlib.Path) -> None:
    peaks = []
    for size in (10, 30):
        changes = {"num_passages": 64 * size, "max_questions": 20, "out": str(tmp_path / str(size))}
        tracemalloc.start()
        files.write_world(dataclasses.replace(SMALL, **changes))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]

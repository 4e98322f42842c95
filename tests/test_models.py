"""What every model keeps: batches change nothing, every request once, counts, fingerprints, the fake."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import models
import pytest
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.config.reader import ReaderConfig
from erag_ray.models import make_model, model_id
from erag_ray.models.local import model as local
from erag_ray.models.local.model import Output, PromptTokens
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.prompts.request import Form, Passage, Request

CASES: list[tuple[str, dict[str, Any]]] = [
    ("fid", {}),
    ("ipa", {}),
    ("causal", {"prompt": "plain"}),
    ("causal", {"prompt": "chat"}),
]
each_model = pytest.mark.parametrize(
    ("kind", "settings"), CASES, ids=["fid", "ipa", "causal_plain", "causal_chat"]
)
ECHO = models.form_for("echo", max_new_tokens=50)


def made(kind: str, settings: dict[str, Any], num: int = 70) -> tuple[Form, list[Request]]:
    """The form of a case's requests, and some of them."""
    form = models.form_for(kind, **settings)
    return form, models.some_requests(form, num)


@each_model
def test_generate_takes_prompts_of_any_lengths_together(
    folders: dict[str, str], kind: str, settings: dict[str, Any]
) -> None:
    # `run` never pads more than a little; the padding itself must not matter either
    model = models.loaded(kind, folders[kind])
    prompts = model.render(made(kind, settings, 25)[1])
    alone = [model.generate([prompt])[0] for prompt in prompts]
    assert model.generate(prompts) == alone


@each_model
def test_run_answers_each_request_once_longest_first(
    folders: dict[str, str], kind: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (_, requests) = models.loaded(kind, folders[kind], batch_size=8), made(kind, settings)
    generate, sizes = model.generate, list[int]()

    def counted(prompts: Sequence[PromptTokens]) -> list[Output]:
        sizes.append(len(prompts))
        return list(generate(prompts))

    monkeypatch.setattr(model, "generate", counted)
    places, responses = zip(*model.run(requests), strict=True)
    assert max(sizes) <= 8
    assert sum(sizes) == len(requests)
    assert sorted(places) == list(range(len(requests)))
    lengths = [response.num_prompt_tokens for response in responses]
    assert lengths == sorted(lengths, reverse=True)
    by_place = dict(zip(places, lengths, strict=True))
    assert [by_place[place] for place in range(len(requests))] == [
        p.num_tokens for p in model.render(requests)
    ]
    assert all(1 <= response.num_output_tokens <= 12 for response in responses)


@each_model
def test_windows_are_smaller_beside_a_device(
    folders: dict[str, str], kind: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (_, requests) = models.loaded(kind, folders[kind], batch_size=8), made(kind, settings)
    expected = models.outputs(model, requests)
    num_windows = len(list(model.windows(requests)))
    monkeypatch.setattr(type(model), "has_device", True)
    monkeypatch.setattr(local, "DEVICE_WINDOW_TOKENS", 2000)
    assert len(list(model.windows(requests))) > num_windows
    assert models.outputs(model, requests) == expected


@pytest.mark.long
@each_model
def test_kinds_of_request_do_not_change_each_other(
    folders: dict[str, str], kind: str, settings: dict[str, Any]
) -> None:
    model = models.loaded(kind, folders[kind], batch_size=8)
    forms = [models.form_for(kind, asked, **settings) for asked in (ANSWER, GOLD_LIKELIHOOD)]
    forms += [models.form_for(kind, max_new_tokens=3, **settings)]
    apart = [
        [
            request._replace(answers=(" sea", " the river Tessel"))
            for request in models.some_requests(form, 20)
        ]
        for form in forms
    ]
    expected = [dict(model.run(requests)) for requests in apart]
    together = dict(model.run([request for group in zip(*apart, strict=True) for request in group]))
    for place, found in together.items():
        want = expected[place % len(forms)][place // len(forms)]
        assert found.logprobs == pytest.approx(want.logprobs, abs=1e-4)
        assert dataclasses.replace(found, logprobs=()) == dataclasses.replace(want, logprobs=())
    assert len(together) == 20 * len(forms)


@pytest.mark.long
@each_model
def test_odd_passages_are_answered(folders: dict[str, str], kind: str, settings: dict[str, Any]) -> None:
    model, (form, _) = models.loaded(kind, folders[kind]), made(kind, settings)
    odd = [
        Request(form, "Who built it?", ()),
        Request(form, "Who built it?", (Passage("", ""),)),
        Request(form, "Who built it?", (Passage("The bridge", ""), Passage("", "Ada Brunner"))),
        Request(form, "", ()),
        Request(form, "", (Passage("The bridge", "Ada Brunner"),)),
        Request(form, "Who built it?", (Passage("Long", "river " * 100_000),)),
    ]
    prompts = model.render(odd)
    assert len({prompt.segments for prompt in prompts}) == len(odd)
    assert [prompt.num_truncated_passage_tokens > 90_000 for prompt in prompts] == [False] * 5 + [True]
    assert all(num_tokens >= 1 for _, num_tokens in models.outputs(model, odd))


@each_model
def test_max_new_tokens_counts_the_end_token(
    folders: dict[str, str], kind: str, settings: dict[str, Any]
) -> None:
    model = models.loaded(kind, folders[kind])
    long = models.outputs(model, made(kind, settings, 40)[1])
    short = models.outputs(model, made(kind, {"max_new_tokens": 3, **settings}, 40)[1])
    assert max(num for _, num in long) == 12
    # greedy: a shorter output is the start of the longer one
    assert [num for _, num in short] == [min(num, 3) for _, num in long]
    assert all(
        whole.startswith(part.rstrip("\ufffd")) for (part, _), (whole, _) in zip(short, long, strict=True)
    )


@given(
    lengths=st.lists(st.integers(1, 400), max_size=80),
    batch_size=st.integers(1, 40),
    batch_tokens=st.integers(1, 3000),
)
def test_batches_keep_their_limits(lengths: list[int], batch_size: int, batch_tokens: int) -> None:
    model = models.BareModel(ReaderConfig(kind="echo", batch_size=batch_size, batch_tokens=batch_tokens))
    batches = list(model.batches([models.bare_prompt(ECHO, length) for length in lengths]))
    rows = list(itertools.chain.from_iterable(batches))
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    for batch in batches:
        padded = lengths[batch[0]] * len(batch)
        assert len(batch) <= batch_size
        assert padded <= batch_tokens or len(batch) == 1
        assert padded - sum(lengths[row] for row in batch) <= model.max_padding_share * padded


def test_batches_are_filled() -> None:
    model = models.BareModel(ReaderConfig(kind="echo", batch_size=4, batch_tokens=30))
    # 10 + 9 + 9 = 28 of 30 padded tokens; 5 would waste half; 5 x 4 rows; the last one is left
    lengths = [5, 10, 5, 9, 5, 9, 5, 5]
    prompts = [models.bare_prompt(ECHO, length) for length in lengths]
    assert list(model.batches(prompts)) == [[1, 3, 5], [0, 2, 4, 6], [7]]


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60))
def test_a_batch_is_of_one_form(rows: list[tuple[int, bool]]) -> None:
    model = models.BareModel(ReaderConfig(kind="echo", batch_size=5))
    forms = {True: ECHO, False: dataclasses.replace(ECHO, max_new_tokens=3)}
    batches = list(model.batches([models.bare_prompt(forms[which], length) for length, which in rows]))
    assert sorted(itertools.chain.from_iterable(batches)) == list(range(len(rows)))
    assert all(len({rows[row][1] for row in batch}) == 1 for batch in batches)


def id_of(folder: str, kind: str, **settings: Any) -> str:
    return model_id(make_model(ReaderConfig(kind=kind, model=folder, **settings)))


@pytest.mark.parametrize("kind", ["fid", "ipa", "causal"])
def test_a_models_fingerprint_covers_what_of_it_can_change_an_output(
    folders: dict[str, str], kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make = models.causal_folder if kind == "causal" else models.t5_folder
    here = folders[kind]
    first = id_of(here, kind)
    assert first.startswith(f"{kind}-")
    same = [
        id_of(make(tmp_path_factory.mktemp("elsewhere")), kind),
        id_of(here, kind, batch_size=7, batch_tokens=99),
        # of requests, not of the model
        id_of(here, kind, max_new_tokens=49, max_prompt_tokens=400),
    ]
    assert set(same) == {first}
    others = [
        id_of(make(tmp_path_factory.mktemp("other"), seed=9), kind),
        *(id_of(here, kind, dtype=dtype) for dtype in ("bfloat16", "tf32")),
    ]
    assert len({first, *others}) == 4


@each_model
def test_a_forms_fingerprint_covers_the_lengths_of_prompt_and_output(
    kind: str, settings: dict[str, Any]
) -> None:
    def fingerprint(**changes: Any) -> str:
        return models.form_for(kind, **{"max_new_tokens": None, **settings, **changes}).fingerprint

    first = fingerprint()
    # the dataset's own
    assert fingerprint(max_new_tokens=50) == first
    assert fingerprint(batch_size=7, batch_tokens=99, dtype="bfloat16") == first
    others = [fingerprint(max_new_tokens=49), fingerprint(max_prompt_tokens=400)]
    assert len({first, *others}) == 3


def test_a_forms_fingerprint_covers_the_prompt() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"prompt": "chat"},
        {"num_examples": 1},
        {"family": "claim"},
        {"family": "dialogue"},
        {"stop_at_newline": False},
        {"titles": False},
    ]
    found = {models.form_for("causal", **change).fingerprint for change in changes}
    assert len(found) == len(changes)


def test_a_fid_form_tells_which_end_of_a_question_is_kept(folders: dict[str, str]) -> None:
    families = ("question", "claim", "dialogue")
    forms = [models.form_for("fid", family=family) for family in families]
    assert forms[0] == forms[1] != forms[2]
    # ipa never cuts a question
    model = make_model(ReaderConfig(kind="ipa", model=folders["ipa"]))
    forms = [models.form_for("ipa", family=family, max_prompt_tokens=40) for family in families]
    long = [Request(form, "river sea " * 60, (Passage("Marn", "hills"),)) for form in forms]
    assert len({prompt.segments for prompt in model.render(long)}) == 1


def test_echo_cuts_and_counts() -> None:
    model = make_model(ReaderConfig(kind="echo"))
    form = models.form_for("echo", max_prompt_tokens=10, max_new_tokens=3)
    request = Request(form, "Title?", (Passage("Title", "12345678"),))
    # "Title" + line break + 8 characters = 14, of which 10 are kept
    (rendered,) = model.render([request])
    assert rendered.num_truncated_passage_tokens == 4
    assert rendered.num_tokens == 6 + 10
    ((_, response),) = model.run([request])
    assert (response.num_prompt_tokens, response.num_truncated_passage_tokens) == (6 + 10, 4)
    assert models.outputs(model, [request]) == [("Tit", 3)]

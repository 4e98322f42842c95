"""Models against transformers' own `generate`, one request at a time on the whole prompt as one string."""

import itertools
import statistics
from collections.abc import Iterable
from typing import Any

import models
import pytest
import torch
import transformers

from erag_ray.models.t5.attention import KERNEL_TOKENS, SEGMENTWISE_TOKENS
from erag_ray.prompts.request import Form, Passage, Request

pytestmark = pytest.mark.parity


def some_requests(form: Form, num: int = 30, *, seed: int = 7, longest: int = 40) -> list[Request]:
    # a title and a text of at least one word: the string form has no other way to leave them out
    return [
        with_passages(request, [Passage(title or "Marn", text or "sea") for title, text in request.passages])
        for request in models.some_requests(form, num, seed=seed, longest=longest)
    ]


def with_passages(request: Request, passages: Iterable[Passage]) -> Request:
    return request._replace(passages=tuple(passages))


FID = some_requests(models.form_for("fid"))
IPA = some_requests(models.form_for("ipa"))


@pytest.fixture(scope="module")
def peer(t5: str) -> tuple[Any, Any]:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(t5).eval()
    return transformers.AutoTokenizer.from_pretrained(t5), model


def expected(peer: tuple[Any, Any], text: str) -> tuple[str, int]:
    tokenizer, model = peer
    with torch.inference_mode():
        ids = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=12, do_sample=False)[
            0, 1:
        ]
    return tokenizer.decode(ids, skip_special_tokens=True).strip(), len(ids)


def passage_text(passage: Passage) -> str:
    return f" title: {passage.title} context: {passage.text}"


def one_string(request: Request) -> str:
    return f"question: {request.question}" + "".join(map(passage_text, request.passages))


@pytest.mark.parametrize("kind", ["fid", "ipa"])
def test_fid_with_a_list_of_one_and_ipa_are_t5_on_one_string(
    t5: str, peer: tuple[Any, Any], kind: str
) -> None:
    requests = IPA if kind == "ipa" else [with_passages(r, r.passages[:1]) for r in FID]
    strings = map(one_string, requests)
    got = models.outputs(models.loaded(kind, t5), requests)
    assert got == [expected(peer, text) for text in strings]
    assert len({text for text, _ in got}) > 20


def test_ipa_over_long_passages_is_t5_on_one_string(t5: str, peer: tuple[Any, Any]) -> None:
    requests = some_requests(models.form_for("ipa"), 15, seed=5, longest=250)
    strings = map(one_string, requests)
    model = models.loaded("ipa", t5)
    assert models.outputs(model, requests) == [expected(peer, text) for text in strings]
    lengths = [prompt.num_tokens for prompt in model.render(requests)]
    # every way of attention: few tokens together, and one by one
    assert (
        min(lengths) < SEGMENTWISE_TOKENS < statistics.median(lengths) < KERNEL_TOKENS < max(lengths) < 2048
    )


def test_fid_over_the_same_passage_twice_is_not_changed_by_it(t5: str, peer: tuple[Any, Any]) -> None:
    # attention over a set of states that stands there twice gives the same mean
    twice = [with_passages(r, r.passages[:1] * 2) for r in FID if r.passages]
    strings = [f"question: {r.question}" + passage_text(r.passages[0]) for r in twice]
    assert models.outputs(models.loaded("fid", t5), twice) == [expected(peer, text) for text in strings]


def test_fid_does_not_see_the_order_of_its_passages(t5: str) -> None:
    model = models.loaded("fid", t5)
    several = [request for request in FID if len(request.passages) == 3]
    firsts = models.outputs(model, several)
    for order in itertools.permutations(range(3)):
        turned = [with_passages(r, [r.passages[place] for place in order]) for r in several]
        assert models.outputs(model, turned) == firsts


def test_fid_uses_all_its_passages(t5: str) -> None:
    model = models.loaded("fid", t5)
    several = [request for request in FID if len(request.passages) > 1]
    fewer = [with_passages(r, r.passages[:-1]) for r in several]
    pairs = zip(models.outputs(model, several), models.outputs(model, fewer), strict=True)
    assert sum(one != other for one, other in pairs) > len(several) // 2


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("llama", {}),
        ("gpt2", {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 1024}),
        ("mistral", {"sliding_window": 12, "seed": 3}),
        ("gemma3_text", {**models.GEMMA, "seed": 3}),
    ],
)
@pytest.mark.parametrize("prompt", ["plain", "chat"])
def test_causal_is_generate_on_each_prompt_alone(
    tmp_path_factory: pytest.TempPathFactory, kind: str, settings: dict[str, Any], prompt: str
) -> None:
    folder = models.causal_folder(tmp_path_factory.mktemp(kind), kind=kind, **settings)
    ours, theirs = models.loaded("causal", folder), transformers.AutoModelForCausalLM.from_pretrained(folder)
    requests = some_requests(models.form_for("causal", prompt=prompt, num_examples=1))[:20]
    want = []
    for made in ours.render(requests):
        ids = torch.tensor([made.segments[0]])
        with torch.inference_mode():
            found = theirs.eval().generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=0
            )
        text = ours.tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True)
        want.append(text.split("\n")[0].strip())
    got = [text for text, _ in models.outputs(ours, requests)]
    assert got == want
    assert len(set(got)) > 10


def test_causal_prompts_are_the_whole_string(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = models.causal_folder(tmp_path_factory.mktemp("whole"))
    model = models.loaded("causal", folder)
    string = (
        "Read the passages and answer the question with a few words.\n\n"
        "Passage: (Skerry Point) The lighthouse at Skerry Point was designed by Orla Brandvik and burned whale oil.\n"
        "Question: Who designed the lighthouse at Skerry Point?\nAnswer (a few words): Orla Brandvik\n\n"
        "Passage: (Ada Brunner) Ada Brunner grew up in Mellinghaven and became a surgeon like her mother.\n"
        "Question: Where did Ada Brunner grow up?\nAnswer (a few words): Mellinghaven\n\n"
        "Passage: (Marn) The sea.\nPassage: The hills.\nQuestion: Who built it?\nAnswer (a few words):"
    )
    passages = Passage("Marn", "The sea."), Passage("", "The hills.")
    request = Request(models.form_for("causal"), "Who built it?", passages)
    (prompt,) = model.render([request])
    assert prompt.segments == (tuple(model.tokenizer(string)["input_ids"]),)

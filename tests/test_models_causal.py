"""Decoder-only models: what ends an output, chat templates, prompts that share their start, odd tokenizers."""

import dataclasses
import datetime
import json
import pathlib
from typing import Any

import models
import pytest
import tokenizers
import torch

from erag_ray.config.reader import ReaderConfig
from erag_ray.models import make_model
from erag_ray.models.causal import model as causal
from erag_ray.models.local.model import Output
from erag_ray.prompts.request import Form, Passage, Request
from erag_ray.support.errors import InputError

PLAIN = models.form_for("causal")
CHAT = models.form_for("causal", prompt="chat")
FREE = models.form_for("causal", stop_at_newline=False)
ONE_EXAMPLE = models.form_for("causal", num_examples=1)
NEXT = dataclasses.replace(ONE_EXAMPLE, method="loglikelihood", next_token=True, with_end=False)
# another rotation of all tokens of a batch, where a row has more than 120
ROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [1.0, 3, 5, 9]}
SHORT = {"original_max_position_embeddings": 120, "sliding_window": None, "pad_token_id": 0}
LONGROPE = {"rope_parameters": ROPE, **SHORT}


def some_requests(form: Form = PLAIN) -> list[Request]:
    return models.some_requests(form, 30, seed=3)


def unloaded(folder: str) -> Any:
    return make_model(ReaderConfig(kind="causal", model=folder))


def chat_text(folder: str, request: Request | None = None) -> str:
    model = unloaded(folder)
    (prompt,) = model.render([request or some_requests(CHAT)[2]])
    return str(model.tokenizer.decode(prompt.segments[0]))


def with_template(tmp_path: pathlib.Path, template: Any) -> str:
    tokenizer = models.causal_tokenizer()
    tokenizer.chat_template = template
    return models.causal_folder(tmp_path, tokenizer=tokenizer)


# --- what ends an output


def test_every_token_with_a_line_break_ends_an_output(llama: str) -> None:
    model = models.loaded("causal", llama)
    free, stopped = (
        models.outputs(
            model, some_requests(models.form_for("causal", stop_at_newline=stops, max_new_tokens=24))
        )
        for stops in (False, True)
    )
    pairs = list(zip(free, stopped, strict=True))
    assert sum("\n" in text for (text, _), _ in pairs) > 3
    for (text, num_free), (line, num_stopped) in pairs:
        assert "\n" not in line
        assert num_stopped <= num_free
        # the first line; empty if the output starts with a line break
        assert line in ("", text.split("\n")[0].rstrip())
        assert line == text or num_stopped < num_free


def test_a_token_of_several_line_breaks_is_known_to_end_an_output(llama: str) -> None:
    model = unloaded(llama)
    both = [model.tokenizer.convert_tokens_to_ids(token) for token in ("Ċ", "ĊĊ")]
    assert {model.tokenizer.decode([id_]) for id_ in both} == {"\n", "\n\n"}
    assert set(both) < model.ends(PLAIN)
    assert model.ends(PLAIN) - set(both) == model.ends(FREE) == {0}


def test_end_tokens_named_only_for_generation_end_an_output(llama: str, tmp_path: pathlib.Path) -> None:
    # chat models often end a turn with a token that only generation_config.json names
    folder, requests = models.causal_folder(tmp_path), some_requests(FREE)
    model = models.loaded("causal", folder)
    plain = [output[0] for output in models.outputs(model, requests)]
    letter = max("aeiour", key=lambda letter: sum(letter in text for text in plain))
    ends = [i for i in range(2, len(model.tokenizer)) if letter in model.tokenizer.decode([i])]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, *ends]}))
    stopped = models.outputs(models.loaded("causal", folder), requests)
    longest = max(len(model.tokenizer.decode([i])) for i in ends)
    for whole, (text, _) in zip(plain, stopped, strict=True):
        # up to and with the first token that has the letter
        assert whole.startswith(text)
        assert (text == whole) or letter in text
        assert letter not in text[:-longest]
    assert sum(num < 12 for _, num in stopped) > len(requests) // 2


# --- prompts that share their start


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "settings", "shares"),
    [
        ("llama", {}, True),
        ("mistral", {"sliding_window": 12}, False),
        ("gemma3_text", {**models.GEMMA, "seed": 3}, False),
        ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 1024, "seed": 1}, False),
        ("openai-gpt", {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 1024, "seed": 0}, False),
    ],
)
def test_a_shared_start_changes_no_output(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str, settings: dict[str, Any], shares: bool
) -> None:
    model = models.loaded("causal", models.causal_folder(tmp_path, kind=kind, **settings))
    prompts = model.render(some_requests(ONE_EXAMPLE))
    assert all(prompt.num_shared > 16 for prompt in prompts)
    together = model.generate(prompts)
    shared = prompts[0].segments[0][: prompts[0].num_shared]
    cache, num_known = model.caches.make(shared, 2, len(shared))
    assert (cache is not None, num_known) == ((True, len(shared)) if shares else (False, 0))
    make, prefixes = model.caches.make, list[int]()
    model.caches.make = lambda prefix, *sizes: prefixes.append(len(prefix)) or make(prefix, *sizes)
    # a long prompt by itself is computed from its start
    for whole in (0, 1 << 30):
        monkeypatch.setattr(causal, "WHOLE", whole)
        assert [model.generate([prompt])[0] for prompt in prompts] == together
    assert [count > 0 for count in prefixes] == [False] * len(prompts) + [True] * len(prompts)
    model.caches.make = lambda *_: (None, 0)
    assert [model.generate([prompt])[0] for prompt in prompts] == together
    assert len(set(together)) > 15


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("phi3", LONGROPE),
        ("gpt_neo", {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 12}),
        ("rwkv", {"attention_hidden_size": 32}),
    ],
)
def test_what_padding_would_change_is_computed_by_itself(
    tmp_path: pathlib.Path, kind: str, settings: dict[str, Any]
) -> None:
    model = models.loaded("causal", models.causal_folder(tmp_path, kind=kind, **settings))
    prompts = model.render(some_requests(ONE_EXAMPLE))
    decoding = model.pretrained.decoding(ONE_EXAMPLE, model.ends(ONE_EXAMPLE), 0)
    scored = [dataclasses.replace(prompt, form=NEXT, answer_ids=((7,), (9,))) for prompt in prompts]
    outputs, logprobs = model.generate(prompts), model.loglikelihood(scored)
    for prompt, output, values in zip(prompts, outputs, logprobs, strict=True):
        ids = torch.tensor(prompt.segments)
        plain = model.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=decoding)
        assert model.output(ONE_EXAMPLE, plain[0, ids.shape[1] :].tolist()) == output
        with torch.inference_mode():
            expected = model.model(ids).logits[0, -1].log_softmax(dim=-1)
        assert values == pytest.approx([float(expected[7]), float(expected[9])], abs=1e-4)


def test_two_starts_of_each_prompt_stay_in_memory_whatever_the_requests(llama: str) -> None:
    model = models.loaded("causal", llama)
    forms = [models.form_for("causal", num_examples=1, max_prompt_tokens=most) for most in (300, 400)]
    for seed in range(3):
        for form in forms:
            # some of 400 words are cut
            requests = models.some_requests(form, 12, seed=seed, longest=400)
            assert len(models.outputs(model, requests)) == 12
        # the two forms have one prompt
        assert len(model.caches._states) == 2


def test_rows_that_have_ended_leave_the_batch(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.loaded("causal", llama)
    form = models.form_for("causal", num_examples=1, max_new_tokens=40)
    prompts = model.render([request for request in some_requests(form) if request.passages])
    generate, seen = model.model.generate, list[int]()

    def counted(**arguments: Any) -> Any:
        seen.append(len(arguments["input_ids"]))
        return generate(**arguments)

    monkeypatch.setattr(model.model, "generate", counted)
    together = model.generate(prompts)
    lengths = [output.num_tokens for output in together]
    assert seen == [sum(length > step for length in lengths) for step in range(0, max(lengths), 8)]
    assert len(seen) > 2
    assert seen[0] > seen[-1]
    model.caches.make = lambda *_: (None, 0)
    assert model.generate(prompts) == together


@pytest.mark.parametrize("start", [[models.START], [models.START, models.END]], ids=["bos", "two"])
def test_start_tokens_are_part_of_the_shared_start(tmp_path: pathlib.Path, start: list[str]) -> None:
    # in GLM they are two, and none is called bos_token
    tokenizer = models.causal_tokenizer(pad_token=models.END, bos_token=start[0] if len(start) == 1 else None)
    tokenizer.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{' '.join(start)} $A", special_tokens=[(models.START, 1), (models.END, 0)]
    )
    model = models.loaded("causal", models.causal_folder(tmp_path, tokenizer=tokenizer))
    closed_book, with_passage = model.render(
        [Request(PLAIN, "Who?"), Request(PLAIN, "Who?", (Passage("Sea", "Marn"),))]
    )
    for prompt in (closed_book, with_passage):
        assert prompt.segments[0][: len(start)] == (1, 0)[: len(start)]
        assert prompt.segments[0].count(1) == 1
        text = model.tokenizer.decode(prompt.segments[0][: prompt.num_shared])
        assert text.endswith(("\nQuestion:", "\nPassage:"))
    assert closed_book.num_shared != with_passage.num_shared


# --- chat templates


def test_a_model_without_a_chat_template_is_an_input_error(tmp_path: pathlib.Path) -> None:
    model = unloaded(with_template(tmp_path, None))
    with pytest.raises(InputError, match="has no chat template; use a plain prompt"):
        model.check(CHAT)
    model.check(PLAIN)


@pytest.mark.parametrize(("times", "verb"), [(0, "drops"), (2, "repeats")])
def test_a_chat_template_has_the_message_once(tmp_path: pathlib.Path, times: int, verb: str) -> None:
    with pytest.raises(InputError, match=f"{verb} the user's message"):
        unloaded(with_template(tmp_path, "hello" + "{{ messages[-1].content }}" * times)).check(CHAT)


def test_a_chat_keeps_its_system_prompt_and_never_sees_today(llama: str) -> None:
    request = Request(CHAT, "Who built it?", (Passage("Sea", "The sea\nis  wide."),))
    assert chat_text(llama, request) == (
        "<|start|>system\nYou are brief. Today is 26 Jul 2024.<|end|>\n"
        "<|start|>user\nRead the passages and answer the question with a few words.\n\n"
        "Passage: (Sea) The sea is wide.\nQuestion: Who built it?<|end|>\n<|start|>assistant\n"
    )
    assert datetime.date.today().strftime("%d %b %Y") not in chat_text(llama, request)


@pytest.mark.parametrize("call", ["strftime_now('%Y')", 'strftime_now("%d (%b)")', "strftime_now( '%H:%M' )"])
def test_every_way_to_print_a_date_gives_the_fixed_one(tmp_path: pathlib.Path, call: str) -> None:
    folder = with_template(tmp_path, models.CHAT_TEMPLATE.replace("strftime_now('%d %b %Y')", call))
    assert "Today is 26 Jul 2024." in chat_text(folder)


def test_of_several_chat_templates_the_default_is_used(tmp_path: pathlib.Path) -> None:
    folder = with_template(
        tmp_path, {"default": models.CHAT_TEMPLATE, "tool_use": "{{ messages[0]['content'] }}"}
    )
    assert "You are brief." in chat_text(folder)


# --- thinking ---


def thinking_model(folder: pathlib.Path, template: str = models.CHAT_TEMPLATE) -> Any:
    """A model whose tokens around thinking are control tokens, as Mistral's and those of gpt-oss."""
    tokenizer = models.causal_tokenizer()
    marks = ["[THINK]", "[/THINK]", "<|channel|>", "<|message|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    tokenizer.chat_template = template
    return models.loaded("causal", models.causal_folder(folder, tokenizer=tokenizer))


def written(model: Any, form: Form, text: str) -> tuple[object, ...]:
    """The output of a model that has written a text, and the notes on it."""
    output: Output = model.output(form, model.tokenizer(text)["input_ids"])
    return output[::2]


def test_thinking_between_control_tokens_is_cut(tmp_path: pathlib.Path) -> None:
    model = thinking_model(tmp_path)
    assert written(model, FREE, f"Graz{models.END}") == ("Graz", ())
    assert written(model, FREE, f"[THINK]Graz?{models.END}") == ("", ("thinking",))
    channels = "<|channel|>analysis<|message|>Graz?<|start|>assistant<|channel|>final<|message|>Ada"
    for text in ("[THINK]Graz? No.[/THINK]Ada", channels):
        assert written(model, FREE, f"{text}{models.END}") == ("Ada", ("thinking",))


def test_thinking_that_the_template_opens_is_cut(tmp_path: pathlib.Path) -> None:
    opens = models.CHAT_TEMPLATE.replace("assistant\n' }}{% endif", "assistant\n[THINK]' }}{% endif")
    assert opens != models.CHAT_TEMPLATE
    model = thinking_model(tmp_path, opens)
    form = models.form_for("causal", prompt="chat", stop_at_newline=False)
    assert written(model, form, "Graz? No.[/THINK]\nAda") == ("Ada", ("thinking",))
    # it took all tokens
    assert written(model, form, "Graz? No.") == ("", ("thinking",))

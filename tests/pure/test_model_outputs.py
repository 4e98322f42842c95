"""The answer in a model's text, and what a server's reply is: one table of cases each."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.models.outputs import answer_in, marks_thinking, opens_thinking
from erag_ray.models.served.answers import failure_of, has_thinking_apart, is_cut, text_of

HARMONY = "<|channel|>analysis<|message|>Graz? No.<|end|><|start|>assistant<|channel|>final<|message|>Orla<|return|>"
TAGS = "Thinking", "thought", "seed:think", "scratchpad", "mm:think", "longcat_think", "chain_of_thought"
THINKING = {
    **{f"<{tag}>Graz?</{tag}>Orla": "Orla" for tag in TAGS},
    "<think>Graz?</think>\n\nOrla": "Orla",
    "\n<think>\nGraz?\n</think>Orla": "Orla",
    "<think>Graz?</think><think>No.</think>Orla": "Orla",
    "<think>Graz?</think>\n<thinking>No.</thinking> Orla": "Orla",
    "<reasoning effort='low'>Graz?</reasoning>Orla": "Orla",
    "<thinking>Graz?</think>Orla": "Orla",
    "<s><|im_start|>assistant\n<think>Graz?</think>Orla": "Orla",
    "[THINK]Graz? No.[/THINK]Orla": "Orla",
    "<|im_start|>think\nGraz?<|im_start|>answer\nOrla<|im_end|>": "Orla",
    "[unused16]Graz?[unused17]Orla": "Orla",
    "commentaryGraz?assistantfinalOrla": "Orla",
    "<longcat_think>Graz?</longcat_think >Orla": "Orla",
    "<think >Graz?</think >Orla": "Orla",
    "<|think|>Graz?<|/think|>Orla": "Orla",
    "<unused94>thought\nGraz?<unused95>Orla": "Orla",
    '<details type="reasoning" done="true">Graz?</details>Orla': "Orla",
    "◁think▷Graz?◁/think▷Orla": "Orla",
    "<|begin_of_thought|>Graz?<|end_of_thought|><|begin_of_solution|>Orla<|end_of_solution|>": "Orla",
    "<|START_THINKING|>Graz?<|END_THINKING|><|START_RESPONSE|>Orla<|END_RESPONSE|>": "Orla",
    "<|channel>thought\nGraz?<channel|>Orla<turn|>": "Orla",
    "Here are my reasoning steps:\nGraz?\n[BEGIN FINAL RESPONSE]\nOrla\n[END FINAL RESPONSE]<|end|>": "Orla",
    "<think>Graz?</think >Orla": "Orla",
    "<think>Graz?\n< /think>Orla": "Orla",
    "\ufeff<think>Graz?</think>Orla": "Orla",
    "Here is my thought process: Graz? Here is my response: Orla": "Orla",
    HARMONY: "Orla",
    f"<|start|>assistant{HARMONY}": "Orla",
    "<|channel|>commentary<|message|>Graz?<|end|><|channel|>final <|constrain|>json<|message|>Orla": "Orla",
    "analysisGraz? No.assistantfinalOrla": "Orla",
    "<think>Graz?</think><answer>\nOrla\n</answer>": "Orla",
    "<think>Graz?</think><answer>Orla</answer>. Sure.": "Orla",
    "<think>Graz?</think><final>Orla</final>": "Orla",
    "<think>Graz?</think><answer>It is <|begin_of_box|>Orla<|end_of_box|>.</answer>": "It is Orla.",
    "<think>Graz?</think><|im_start|>assistant\nOrla<|im_end|>": "Orla",
    # a chat template has opened it
    "Graz?\n</think>\nOrla": "Orla",
    "Graz? No.[/THINK]Orla": "Orla",
    "Graz?</think><think>No.</think>Orla": "Orla",
    # it names its own tags
    "<think>In <think> tags.</think>Orla": "Orla",
    "<think>So <think>Graz?</think> or not.</think>Orla": "Orla",
    "<think>Graz?</think>It ends with </think>": "It ends with </think>",
    # it never ends
    "<think>Graz? Orla": "",
    "[THINK]Graz? Orla": "",
    "<|channel|>analysis<|message|>Orla": "",
    "<think>Graz?</think>": "",
}
PLAIN = [
    "Orla", "a <think> b", "Orla <think>or Graz</think> it is", "In <thinking> tags", "Orla</s>Graz",
    "<|im_end|> is a token", "analysis of variance", "<answer>Orla</answer> or", "<think/>Orla", "<think />Orla",
    "<|im_start|> opens a turn", "a < b </ c", "[1]", "the end tag </rationale> closes it", "",
]  # fmt: skip
END_TOKENS = (
    "</s> <|im_end|> <|eot_id|> <|endoftext|> <end_of_turn> <|end|> <|return|> <|end_of_text|> <eos> <pad> "
    "<|END_OF_TURN_TOKEN|> <\uff5cend\u2581of\u2581sentence\uff5c> [|endofturn|] <seed:eos> <turn|> [EOS] "
    "<s> <bos> <eos_token> <extra_id_1> <reserved_107> [INST] [SEP] "
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|> <|im_end|><|im_start|>user"
)
CONTROLS = st.sampled_from(END_TOKENS.split())


@pytest.mark.parametrize("text", THINKING)
def test_thinking_is_cut_before_an_answer_in_all_its_forms(text: str) -> None:
    answer = answer_in(text)
    assert answer.text == THINKING[text]
    assert "thinking" in answer.notes


@pytest.mark.parametrize("text", PLAIN)
def test_tags_within_an_answer_stay(text: str) -> None:
    assert answer_in(text) == (text, ())


def test_blocks_without_thinking_are_cut_and_not_counted() -> None:
    assert answer_in("<think>\n\n</think>\n\nOrla") == ("Orla", ())
    assert answer_in("<|channel|>final<|message|>Orla") == ("Orla", ())


@given(ends=st.lists(CONTROLS, min_size=1, max_size=3), blank=st.sampled_from(["", " ", "\n"]))
def test_control_tokens_are_cut_at_the_end_and_counted(ends: list[str], blank: str) -> None:
    assert answer_in(f"Orla{blank}{blank.join(ends)}") == ("Orla", ("control",))
    assert answer_in(blank.join(ends)) == ("", ("control",))


@given(st.text(alphabet="ab <>/|[]\nthink"))
def test_what_has_no_whole_tag_is_only_stripped(text: str) -> None:
    if not any(sign in text for sign in ("think>", "|>", "<|")):
        assert answer_in(text) == (text.strip(), ())


ENDS_OF_TURNS = (
    "<|im_end|>\n<|im_start|>user\n", "<|endoftext|>", "\n<end_of_turn>", "[|endofturn|]", "<|end|>\n<|user|>",
    "<|user|>\n", "<|observation|>", "<\uff5cUser\uff5c>", "</s> [INST] ", "</s><s>",
)  # fmt: skip


@pytest.mark.parametrize("end", ENDS_OF_TURNS)
def test_what_follows_the_end_of_a_turn_is_cut(end: str) -> None:
    assert answer_in(f"Orla{end}Who is Ann?") == ("Orla", ("control",))


def test_an_answer_within_tags_is_what_they_enclose() -> None:
    assert answer_in("<answer>Orla</answer>\n").text == "Orla"
    assert answer_in("<inner_thoughts>Graz?</inner_thoughts><final>Orla</final>").text == "Orla"


OPENINGS = (
    "<|assistant|>", "<s>", "<bos>", "<|begin_of_text|>", "<|START_RESPONSE|>", "<|begin_of_box|>",
    "<|im_start|>assistant\n", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<start_of_turn>model\n",
    "<pad> ", "[/INST] ", "assistantfinal", "<|start_of_role|>assistant<|end_of_role|>",
    "<|im_start|>assistant<|im_sep|>",
)  # fmt: skip


@pytest.mark.parametrize("opening", OPENINGS)
def test_control_tokens_that_open_an_answer_are_cut(opening: str) -> None:
    for one_line in (False, True):
        assert answer_in(f"{opening}Orla</s>", one_line=one_line) == ("Orla", ("control",))
        assert answer_in(f"<s>{opening}Orla", one_line=one_line) == ("Orla", ("control",))


def test_an_answer_of_one_line_is_the_first_after_the_thinking() -> None:
    assert answer_in("Orla\nGraz", one_line=True).text == "Orla"
    assert answer_in("<think>a\nb</think>\n\nOrla\nGraz", one_line=True).text == "Orla"
    assert answer_in("\nOrla", one_line=True).text == ""


def test_a_prompt_may_open_the_thinking() -> None:
    assert opens_thinking("<|im_start|>assistant\n<think>\n") == "<think>"
    assert opens_thinking("<|im_start|>assistant\n<think>\n\n</think>\n\n") == ""
    assert opens_thinking("in <think> tags.\n<|im_start|>assistant\n") == ""
    tokens = ["<think>", "[THINK]", "[/THINK]", "<|channel|>", "<|channel>", "</s>", "<|im_end|>", "<|end|>"]
    assert [token for token in tokens if marks_thinking(token)] == tokens[:5]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "part", ["\n", "<think>", "<think>x</think>", "</s>", "<|im_start|>", "<", "<|channel|>"]
)
def test_a_model_that_repeats_itself_takes_no_long_time(part: str) -> None:
    answer_in(part * 10_000)
    answer_in(f"{part * 10_000}x")


# --- replies of servers ---


def reply(content: object = "Orla", reason: object = "stop", **fields: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **fields}, "finish_reason": reason}]}


def choice(**fields: Any) -> dict[str, Any]:
    (first,) = reply()["choices"]
    return {"choices": [{**first, **fields}]}


CALL = [{"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}]
DOWN = {"code": 502, "message": "upstream is gone"}
BROKEN = ("error", "abort", "cancelled", "load", "network_error", "ERROR", 3, "insufficient_system_resource")
FILTERED = ("content_filter", "content_filter: SAFETY", "refusal", "SAFETY", "sensitive")
FAILURES: dict[str, list[object]] = {
    "resource": [
        *(reply("An", reason) for reason in BROKEN), choice(error=DOWN),
        choice(finish_reason="error", error="overloaded"), reply(error=DOWN), {**reply(), "error": DOWN},
        {"error": "overloaded"}, {"object": "error", "message": "no", "code": 500}, {"choices": []},
        {"choices": None}, {}, {"errors": [{"code": 429, "message": "quota exceeded"}]},
        {**reply(), "errors": [DOWN]}, {"detail": "Not authenticated"}, {"code": 1305, "msg": "busy"}, [],
        reply([{"type": "image_url", "image_url": {"url": "x"}}]), choice(message=None), reply(7),
        reply("", None), reply(None, "null"), reply({"parts": [{"text": "An"}]}),
        reply([{"type": "image_url", "image_url": {}}]),
    ],
    "refused": [
        reply(None, refusal="I will not."), reply([{"type": "refusal", "refusal": "I will not."}]),
        *(reply("An", reason) for reason in FILTERED),
        choice(error={"code": 403, "message": "flagged", "metadata": {"reasons": ["violence"]}}),
        {"error": {"code": "data_inspection_failed", "message": "Output may be inappropriate."}},
    ],
    "input": [
        reply(None, "tool_calls", tool_calls=CALL), reply("I look it up.", "stop", tool_calls=CALL),
        reply(None, "function_call", function_call=CALL[0]["function"]), reply("An", "tool_use"),
        reply([{"type": "text", "text": "An"}, {"type": "tool_use", "name": "find"}]),
        reply(None, "function_call_filter: MALFORMED_FUNCTION_CALL"),
        reply([{"type": "toolCall", "name": "find"}]), {"error": {"code": 400, "message": "too long"}},
        {"error": {"code": None, "type": "invalid_request_error", "message": "too long"}},
        {"code": 400, "msg": "too long"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "answer"), [(kind, one) for kind, replies in FAILURES.items() for one in replies], ids=str
)
def test_what_is_not_an_answer_is_an_error_of_its_kind(kind: str, answer: object) -> None:
    assert failure_of(answer).kind == kind  # type: ignore[union-attr]


TEXTS: list[tuple[dict[str, Any], str]] = [
    (reply(), "Orla"),
    (reply([{"type": "text", "text": "Or"}, {"type": "text", "text": "la"}]), "Orla"),
    (reply([{"type": "thinking", "thinking": [{"type": "text", "text": "Graz?"}]}, {"text": "Orla"}]), "Orla"),
    (reply(["Or", {"type": "reference", "reference_ids": [1]}, "la"]), "Orla"),
    (reply({"type": "text", "text": "Orla"}), "Orla"),
    (reply([{"type": "output_text", "text": "Orla"}]), "Orla"),
    (reply([{"type": "text", "text": {"value": "Orla"}}]), "Orla"),
    (reply([{"type": "reasoning", "reasoning": "Graz?"}]), ""),
    (reply([{"type": "reasoning_text", "text": "Graz?"}, {"type": "Text", "text": "Orla"}]), "Orla"),
    (reply([{"type": "text", "content": "Orla"}]), "Orla"),
    (reply([{"text": "Graz?", "thought": True}, {"text": "Orla"}]), "Orla"),
    (reply(None, "length", reasoning_content="Graz?"), ""),
    (reply(None), ""),
    (reply(tool_calls=[], function_call=None, refusal=None, error=None), "Orla"),
    (choice(error=None), "Orla"),
    ({"choices": [{"text": "Orla", "finish_reason": "stop"}]}, "Orla"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "text"), TEXTS, ids=str)
def test_text_is_joined_from_its_parts(answer: dict[str, Any], text: str) -> None:
    assert failure_of(answer) is None
    assert text_of(answer) == text
    assert has_thinking_apart(answer) == any(
        name in str(answer) for name in ("thinking", "reasoning", "thought")
    )


@pytest.mark.parametrize(
    "answer", [{"errors": [DOWN]}, {"detail": DOWN["message"]}, {"code": 7, "msg": DOWN["message"]}]
)
def test_the_text_of_an_error_is_named_in_all_its_forms(answer: object) -> None:
    assert failure_of(answer) == ("resource", "the answer is an error: upstream is gone")


COMPLETE = ("stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "COMPLETE", None, "")
CUT = ("length", "max_tokens", "MAX_TOKENS", "model_length", "maxOutputTokens", "repetition")
ENDS = [
    *((one, False) for one in (*COMPLETE, {"type": "stop"})),
    *((one, True) for one in (*CUT, {"type": "length", "length": 8})),
]


@pytest.mark.parametrize(("reason", "cut"), ENDS)
def test_answers_end_by_themselves_or_at_the_limit(reason: object, cut: bool) -> None:
    assert failure_of(reply("Orla", reason)) is None
    assert is_cut(reply("Orla", reason)) == cut

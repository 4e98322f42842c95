"""The answer in the text that a model writes: without the thinking before it and the control tokens after it. Pure.

One rule for all readers. It cuts the ends of a text only: an answer that is about ``<think>`` keeps the word.
"""

import re
from typing import NamedTuple

SURROGATE = re.compile(r"[\ud800-\udfff]")
"""Half of a surrogate pair, which no file can store."""
_FLAGS = re.IGNORECASE | re.DOTALL
_TAGS = "(?:(?:ant|[a-z]+[:_])?think(?:ing)?|thoughts?|reasoning)"
_PROMPTED_TAGS = (
    "(?:reason|cot|chain_of_thought|inner_monologue|reflection|scratchpad|analysis|rationale"
    "|thought_process|thinking_process|inner_thoughts|internal_thoughts|reasoning_content|planning)"
)
_ANSWER_TAGS = "(?:answer|final|final_answer|response|output|solution)"


class _Form(NamedTuple):
    """A form of thinking."""

    start: re.Pattern[str]
    """Of a block."""
    end: re.Pattern[str]
    """Of a block; the answer, or another block, follows."""
    needs_start: bool = False
    """Whether the end by itself is plain text. Else the start may be missing, since some chat templates end with it."""


def _form(start: str, end: str, *, needs_start: bool = False) -> _Form:
    return _Form(re.compile(start, _FLAGS), re.compile(end, _FLAGS), needs_start)


_FORMS = (
    _form(rf"<{_TAGS}(?:\s[^<>]*)?(?<!/)>", rf"<\s*/\s*{_TAGS}\s*>"),
    _form(rf"<{_PROMPTED_TAGS}>", rf"</{_PROMPTED_TAGS}>", needs_start=True),
    _form(r"\[THINK\]", r"\[/THINK\]"),  # Mistral
    _form(r"<\|im_start\|>\s*think\b", r"<\|im_start\|>\s*answer\b"),  # s1
    _form(r"\[unused16\]", r"\[unused17\]"),  # openPangu
    _form(r"<\|think(?:ing)?\|>", r"<(?:\|/|/\|)think(?:ing)?\|>"),
    _form(r"<unused94>\s*thought\b", "<unused95>"),  # MedGemma
    _form('<details type="reasoning"[^<>]*>', "</details>", needs_start=True),  # Open WebUI
    _form("◁think▷", "◁/think▷"),  # Kimi
    _form(r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),  # Sky-T1, OpenThinker
    _form(r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Command A
    _form(r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),  # Apertus
    _form(r"<\|channel>\s*thought\b", r"<channel\|>"),  # Gemma
    _form("Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]"),  # Apriel
    # gpt-oss (harmony): every channel before "final"; then the same where a server drops the control tokens
    _form(
        r"(?:<\|start\|>\s*assistant\s*)?<\|channel\|>(?!\s*final)",
        r"(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>",
    ),
    _form("(?:analysis|commentary)(?=.*assistantfinal)", "assistantfinal", needs_start=True),
    _form("Here(?:'s| is) my thought process:", "Here(?:'s| is) my response:", needs_start=True),  # Granite
)
_WRAPPER = re.compile(rf"\A\s*<{_ANSWER_TAGS}>(?P<answer>.*?)(?:</{_ANSWER_TAGS}>.*)?\Z", _FLAGS)
"""What some models put around the answer that follows their thinking; what follows it is not part of it."""
_WRAPPED = re.compile(rf"\A\s*<(?P<tag>{_ANSWER_TAGS})>(?P<answer>.*)</(?P=tag)>\s*\Z", _FLAGS)
"""The same around the whole of a text without thinking."""
_OPENING = re.compile(
    r"\A\s*(?:<s>|<bos>|<pad>|<extra_id_0>|\[/INST\]|assistantfinal|<\|(?:assistant|message)\|>"
    r"|<\uff5c(?:Assistant|begin\u2581of\u2581sentence)\uff5c>|<\|(?:begin_of_(?:text|solution)|START_(?:RESPONSE|TEXT))\|>"
    r"|<\|(?:im_start|start_header_id|start_of_role)\|>\s*assistant(?:\s*<\|(?:end_header_id|end_of_role|im_sep)\|>|\s)"
    r"|<start_of_turn>\s*model\s)",
    _FLAGS,
)
"""A control token with which an answer begins."""
_NEXT_TURN = re.compile(
    r"(?<=\S)\s*(?:<\|(?:im_end|eot_id|eom_id|end_of_text|endoftext|end|user|assistant|system|observation)\|>|<end_of_turn>"
    r"|<\uff5c(?:end\u2581of\u2581sentence|User|Assistant)\uff5c>|\[\|endofturn\|\]|</s>\s*(?=<s>|\[INST\]))",
    _FLAGS,
)
"""The end of a turn, where a server has not stopped: what follows an answer is not part of it."""
_BOX = re.compile(r"<\|(?:begin|end)_of_box\|>")
"""What GLM writes around an answer, anywhere in its text."""
_CONTROL = (
    r"(?:<(?:\|(?:im_start|start_header_id)\||start_of_turn)>\s*(?:assistant|user|system|model)?"
    r"|<\|[^<>|\s]{1,40}\|>"  # ChatML, Llama, GPT
    r"|<\uff5c[^<>\uff5c]{1,40}\uff5c>|\[\|[^\[\]|\s]{1,40}\|\]"  # DeepSeek; EXAONE
    r"|</?s>|<(?:seed:)?(?:eos|eos_token|bos|sep|pad|extra_id_[0-9]+|reserved_[0-9]+|eot|eom|eod|turn\||endoftext|end_of_(?:turn|text|utterance|sentence))>"
    r"|\[(?:EOS|EOT|PAD|SEP|/?INST|END FINAL RESPONSE)\])"
)
_LAST_CONTROL = re.compile(rf"{_CONTROL}\Z", _FLAGS)
_MOST_CHARACTERS = 80
"""The length of the longest control token."""
_BEFORE_THINKING = re.compile(rf"\A(?:[\s\ufeff\u200b]*(?:<s>|<bos>|{_CONTROL}))*[\s\ufeff\u200b]*", _FLAGS)


class Answer(NamedTuple):
    """The answer in a model's text."""

    text: str
    """Empty if the thinking never ends."""
    notes: tuple[str, ...] = ()
    """``thinking`` and ``control``, for what was cut."""


def answer_in(text: str, *, one_line: bool = False) -> Answer:
    """Return the answer in a model's text, stripped of blanks; with ``one_line`` up to its first line break.

    Thinking is cut at the start: any number of blocks, each with its end; one without a start, which a chat template
    has opened; one without an end, which is the whole text. Control tokens are cut at the end, and those that open an
    answer at its start.
    """
    rest, thinking = _without_thinking(text)
    opened = _BOX.sub("", rest)
    while opening := _OPENING.match(opened):
        opened = opened[opening.end() :]
    has_opening = opened != rest
    if one_line:
        opened = (opened.lstrip() if has_opening or thinking is not None else opened).split("\n", 1)[0]
    answer = _NEXT_TURN.split(opened, 1)[0].rstrip()
    while last := _LAST_CONTROL.search(answer, max(0, len(answer) - _MOST_CHARACTERS)):
        answer = answer[: last.start()].rstrip()
    has_controls = has_opening or answer != opened.rstrip()
    if wrapped := (_WRAPPED if thinking is None else _WRAPPER).match(answer):
        answer = wrapped["answer"]
    notes = {"thinking": bool(thinking and thinking.strip()), "control": has_controls}
    return Answer(answer.strip(), tuple(name for name, is_set in notes.items() if is_set))


def opens_thinking(prompt: str) -> str:
    """Return the start of thinking with which a prompt ends, as some chat templates do; "" if it ends with none."""
    for form in _FORMS:
        for start in form.start.finditer(prompt):
            if not prompt[start.end() :].strip():
                return start.group()
    return ""


def marks_thinking(token: str) -> bool:
    """Return whether a token is a start or an end of thinking."""
    # a channel's name follows its token
    return any(form.start.match(f"{token}thought") or form.end.match(token) for form in _FORMS)


def _without_thinking(text: str) -> tuple[str, str | None]:
    """Return the rest of a text after its blocks of thinking, and these; None if it has none."""
    rest, thinking = text, ""
    for form in _FORMS:
        end = None if form.needs_start else form.end.search(text)
        if end and not form.start.search(text, 0, end.start()):
            rest, thinking = text[end.end() :], text[: end.start()]
            break
    while block := next((match for form in _FORMS if (match := _block(form, rest))), None):
        inner, rest = block
        thinking += inner
    return rest, None if rest == text else thinking


def _block(form: _Form, text: str) -> tuple[str, str] | None:
    """Return the block that a text starts with, and the rest; None if it starts with none."""
    text = text.lstrip()
    before = _BEFORE_THINKING.match(text)
    start = form.start.match(text) or (before and form.start.match(text, before.end()))
    if start is None:
        return None
    end = form.end.search(text, start.end())
    if end is None:
        return text[start.end() :], ""
    # the thinking may name its own tags
    for _ in form.start.findall(text, start.end(), end.start()):
        end = form.end.search(text, end.end()) or end
    return text[start.end() : end.start()], text[end.end() :]

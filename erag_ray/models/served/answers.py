"""Replies of servers with status 200: which are answers, and which are errors of some kind. Pure.

Only text that ended for a known reason is an answer. The names are those of OpenAI, vLLM, SGLang, llama.cpp, Ollama,
TGI, LM Studio, Mistral, Cohere, DeepSeek, GLM, and the gateways to Anthropic, Gemini and Bedrock.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from erag_ray.models.budget import TokenCounts
from erag_ray.models.outputs import SURROGATE
from erag_ray.prompts.request import Failure
from erag_ray.support.user_code import one_line


def _reasons(text: str) -> frozenset[str]:
    """Return reasons in letters of one case: end_turn, END_TURN and endTurn are one."""
    return frozenset(text.split())


COMPLETE = _reasons(
    "stop eos eostoken eosfound end endturn endoftext stopsequence stoptoken stopstring stopstringfound word "
    "complete completed done finish finished normal"
)
"""Reasons of an answer that ended by itself."""
CUT = _reasons(
    "length limit maxtokens maxlength maxnewtokens maxoutputtokens maxcompletiontokens modellength tokenlimit "
    "maxpredictedtokensreached contextlength contextlengthreached contextwindowexceeded modelcontextwindowexceeded "
    "repetition"
)
"""Reasons of an answer that ended at the limit of tokens."""
REFUSED = _reasons(
    "contentfilter contentfiltered contentpolicy refusal refused safety recitation blocklist blocked "
    "prohibitedcontent spii sensitive guardrailintervened errortoxic moderation"
)
TOOLS = _reasons(
    "toolcall toolcalls tooluse functioncall functioncallfilter malformedfunctioncall unexpectedtoolcall"
)
MISSING = frozenset(["", "none", "null"])
"""Some servers name no reason: then a text is an answer, and no text is an error."""
FILTERED = ("content_filter", "content_policy", "content_management", "moderation", "flagged", "inspection")
"""Words in an error that a content filter caused."""
FINAL_CODES = frozenset(
    ["400", "413", "422", "invalid_request_error", "context_length_exceeded", "BadRequestError"]
)
"""Codes and types of errors that would come again."""
MESSAGES = ("message", "msg", "error_msg", "detail")
"""Fields of the text of an error."""
THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks")
"""Fields of a message in which some servers return thinking separately from the text."""

TEXT_PARTS = frozenset(["text", "outputtext"])
THINKING_PARTS = frozenset(
    ["thinking", "redactedthinking", "reasoning", "reasoningtext", "reasoningcontent", "summarytext"]
)
TOOL_PARTS = frozenset(["tooluse", "toolcall", "functioncall"])
"""Types of the parts of a content, in letters of one case. Mistral and some gateways send them instead of one text."""
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""What JSON of an unexpected form raises where it is read."""
MAX_COUNT = 1 << 31
"""A count of tokens from this number on is none."""


def failure_of(reply: object) -> Failure | None:
    """Return why a reply is not an answer; None if it is one.

    The kind is ``resource`` for what may pass when the request is sent again.
    """
    try:
        if not isinstance(reply, dict):
            return Failure("resource", "the answer is no JSON object")
        choices = reply.get("choices")
        is_error = reply.get("object") == "error" or (
            "choices" not in reply and any(map(reply.get, MESSAGES))
        )
        if error := reply.get("error") or reply.get("errors") or (is_error and reply):
            return _failure_of_error(error)
        if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
            return Failure("resource", "the answer has no choice")
        choice = choices[0]
        if error := choice.get("error") or _message(choice).get("error"):
            return _failure_of_error(error)
        return _failure_of_choice(choice)
    except UNREADABLE as fault:
        return Failure("resource", f"the answer cannot be read: {type(fault).__name__}")


def _failure_of_choice(choice: Mapping[str, Any]) -> Failure | None:
    reason, message = _reason(choice), _message(choice)
    parts = dict(_parts(message.get("content")))
    if refusal := message.get("refusal") or parts.get("refusal"):
        return Failure("refused", f"the model refuses: {one_line(str(refusal))}")
    if reason in REFUSED:
        return Failure("refused", "the server's content filter ended the answer")
    calls = message.get("tool_calls") or message.get("function_call")
    if calls or reason in TOOLS or not TOOL_PARTS.isdisjoint(parts):
        return Failure(
            "input", "the model calls a tool and does not answer; turn tools off (reader.extra_body)"
        )
    text = _text(choice)
    if text is None:
        return Failure("resource", "the answer has no text")
    if parts and TEXT_PARTS.union(THINKING_PARTS, ["refusal"]).isdisjoint(parts):
        types = one_line(", ".join(sorted(parts)))
        return Failure("resource", f"the answer has no text, but parts of type {types}")
    if SURROGATE.search(text):
        return Failure("resource", "the answer has half of a surrogate pair")
    if reason in MISSING:
        is_empty = not text and not choice.get("logprobs")
        return Failure("resource", "the answer has neither text nor finish_reason") if is_empty else None
    if reason not in COMPLETE | CUT:
        why = f"finish_reason is {choice.get('finish_reason')!r}"
        return Failure("resource", f"{why}: the answer did not end by itself or at the limit of tokens")
    return None


def _failure_of_error(error: object) -> Failure:
    first = error[0] if isinstance(error, list) and error else error
    fields = first if isinstance(first, dict) else {}
    message = next((fields[name] for name in MESSAGES if fields.get(name)), error)
    text = f"the answer is an error: {one_line(str(message))}"
    if any(word in str(error).casefold() for word in FILTERED):
        return Failure("refused", text)
    codes = {str(fields.get(name)) for name in ("code", "status", "status_code", "type")}
    return Failure("input" if codes & FINAL_CODES else "resource", text)


def usage_of(reply: Mapping[str, Any], name: str) -> int | None:
    """Return a token count in a reply's ``usage``, by its dotted path; None if it has none that could be one."""
    count: Any = reply.get("usage")
    for key in name.split("."):
        count = count.get(key) if isinstance(count, dict) else None
    is_count = isinstance(count, int | float) and not isinstance(count, bool) and 0 <= count < MAX_COUNT
    return int(count) if is_count and count == int(count) else None


def counts_of(reply: Mapping[str, Any], estimate: TokenCounts) -> TokenCounts:
    """Return the token counts of a reply, and those of an estimate where it has none: unknown is not 0."""
    num_prompt, num_output = usage_of(reply, "prompt_tokens"), usage_of(reply, "completion_tokens")
    if not num_prompt:  # no prompt has 0 tokens: the server does not count
        num_prompt, num_output = None, num_output or None
    counts = TokenCounts(
        num_prompt=estimate.num_prompt if num_prompt is None else num_prompt,
        num_cached=usage_of(reply, "prompt_tokens_details.cached_tokens") or 0,
        num_output=estimate.num_output if num_output is None else num_output,
        is_estimated=num_prompt is None or num_output is None,
    )
    return counts._replace(num_cached=min(counts.num_cached, counts.num_prompt))


def name_of(reply: Mapping[str, Any], field: str) -> str | None:
    """Return the text in a field, such as the model's name; None if there is none."""
    name = reply.get(field)
    return name if isinstance(name, str) and name else None


def text_of(reply: Mapping[str, Any]) -> str:
    """Return the text of an answer; "" if it has none."""
    return _text(reply["choices"][0]) or ""


def is_cut(reply: Mapping[str, Any]) -> bool:
    return _reason(reply["choices"][0]) in CUT


def has_thinking_apart(reply: Mapping[str, Any]) -> bool:
    message = _message(reply["choices"][0])
    has_parts = any(kind in THINKING_PARTS for kind, _ in _parts(message.get("content")))
    return has_parts or any(bool(message.get(name)) for name in THINKING_FIELDS)


def _reason(choice: Mapping[str, Any]) -> str:
    """Return the finish reason in letters of one case; "content_filter: SAFETY" is its first word."""
    reason = choice.get("finish_reason")
    if isinstance(reason, dict):  # SGLang
        reason = reason.get("type")
    return _letters(str(reason or "").partition(":")[0])


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _message(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    message = choice.get("message")
    return message if isinstance(message, dict) else {}


def _text(choice: Mapping[str, Any]) -> str | None:
    """Return the text of a choice, "" for a message without content; None if it has no place for a text."""
    has_message = isinstance(choice.get("message"), dict)
    content = choice["message"].get("content") if has_message else choice.get("text")
    if isinstance(content, str):
        return content
    if isinstance(content, list | dict):
        parts = list(_parts(content))
        is_known = not parts or any(kind in TEXT_PARTS | THINKING_PARTS for kind, _ in parts)
        return "".join(text for kind, text in parts if kind in TEXT_PARTS) if is_known else None
    return "" if has_message and content is None else None


def _parts(content: object) -> Iterator[tuple[str, str]]:
    """Yield type, in letters of one case, and text of each part of a content."""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield "text", part
        if isinstance(part, dict):
            name = str(part.get("type") or "text")
            # Gemini marks its thinking
            kind = "thinking" if part.get("thought") is True else _letters(name)
            if kind in TEXT_PARTS and not part.keys() & {"text", "content"}:
                # text under another key is not an empty text
                kind = "unknown"
            value = part.get("text", part.get("content")) if kind in TEXT_PARTS else part.get(name)
            value = value.get("value") if isinstance(value, dict) else value
            yield kind, value if isinstance(value, str) else str(value or "")

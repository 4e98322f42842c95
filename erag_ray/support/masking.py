"""Secrets of a job, which its config names by environment variables, and texts without them."""

import base64
import functools
import html
import os
import platform
import re
import traceback
from typing import Any

MASK = "***"
MIN_CHARACTERS = 8
"""Shorter values are placeholders, such as EMPTY for a server without keys, and words of other texts."""
CREDENTIALS = re.compile(r"(?<!abfs)(?<!abfss)://(?:[^\s/@:]*:[^\s@]*|[^\s/@:]+)@")
"""A user, or a user and a password, in a URI; passwords of S3 contain slashes. Azure's containers look like users."""
_VARIABLES = {
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "HF_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "RAY_AUTH_TOKEN",
    "WANDB_API_KEY",
}
"""Environment variables with secrets: of libraries, and those that this process has read as `Secret`."""


class Secret:
    """The value of an environment variable that a config names; as text it is `MASK`.

    From its first use on, all messages and answers of this process are without it. Raises ValueError if the variable is
    not set, or has characters that no header of HTTP may have.
    """

    def __init__(self, key: str, variable: str) -> None:
        _VARIABLES.add(variable)
        self.value = os.environ.get(variable, "").strip()
        fault = "" if self.value else f"is not set on node {platform.node()}"
        if not (self.value.isascii() and self.value.isprintable()):
            fault = "has line breaks or characters beyond ASCII; set it to the key only"
        if fault:
            raise ValueError(f"{key}: the environment variable {variable} {fault}")

    def __repr__(self) -> str:
        return MASK


def masked(value: Any) -> Any:
    """Return a text, or a JSON value, with `MASK` instead of the secrets, also where they are encoded.

    Encodings are percent signs, escapes of JSON, Python and HTML, hexadecimal digits and base64.
    """
    values = {os.environ.get(variable, "").strip() for variable in _VARIABLES}
    secrets = sorted((one for one in values if len(one) >= MIN_CHARACTERS), key=len, reverse=True)
    return _replaced(value, _pattern(tuple(secrets))) if secrets else value


def masked_message(text: str) -> str:
    """Return a text with `MASK` instead of the secrets, and of users and passwords in URIs."""
    return CREDENTIALS.sub(f"://{MASK}@", str(masked(text)))


def masked_traceback(error: BaseException) -> str:
    """Return the traceback of an error, as Python prints it, by `masked_message`."""
    return masked_message("".join(traceback.format_exception(error)).rstrip())


def _replaced(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, dict):
        return {_replaced(key, pattern): _replaced(member, pattern) for key, member in value.items()}
    return [_replaced(member, pattern) for member in value] if isinstance(value, list) else value


@functools.lru_cache(8)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str]:
    texts = list(secrets)
    for data in (secret.encode() for secret in secrets):
        texts += [data.hex(), data.hex().upper()]
        # of base64, what does not depend on the text before the secret and after it
        for num_before, start in enumerate((0, 2, 3)):
            encoded = base64.b64encode(bytes(num_before) + data).decode()
            texts.append(encoded[start : (num_before + len(data)) * 8 // 6])
    return re.compile("|".join("".join(map(_character, text)) for text in texts))


def _character(character: str) -> str:
    """Return a pattern of a character in all its escapes; + and / also as in the base64 of URLs."""
    code = ord(character)
    percent = "".join(f"%(?:25)*{byte:02x}" for byte in character.encode())
    escapes = rf"(?i:{percent}|\\u{code:04x}|\\x{code:02x}|&#0*{code};|&#x0*{code:x};)"
    others = {html.escape(character), f"\\{character}", {"+": "-", "/": "_"}.get(character, character)}
    texts = [*sorted(others - {character}, key=len, reverse=True), character]
    return f"(?:{escapes}|{'|'.join(map(re.escape, texts))})"

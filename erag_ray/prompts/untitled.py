"""The template of a passage that has no title, from the template of one that has."""

import re

_LABEL = r"""["']?[^\W\d_][\w -]*["']?\s*[:=]\s*"""
_QUOTES = r"""["'*_]*"""
_TITLE_LABEL = (
    r"""["']?(?:[^\W_][\w -]*)?(?:title|titel|titre|t[ií]tulo|heading|headline)[\w ]*["']?\s*[:=]\s*"""
)
_BRACKETED = rf"\((?:{_LABEL})?{_QUOTES}\{{title\}}{_QUOTES}\)|\[(?:{_LABEL})?{_QUOTES}\{{title\}}{_QUOTES}\]"
_LABELLED_TEXT = rf"(?=\W*{_LABEL}{_QUOTES}\{{text\}})"
_TITLES = [
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        r"<(\w+)>\s*\{title\}\s*</\1>\s*",
        r"\(\{title\}\) ",
        rf"^(?:{_BRACKETED})[:.,]?[ \n]?",
        rf" ?(?:{_BRACKETED})",
        rf"{_TITLE_LABEL}{_QUOTES}\{{title\}}{_QUOTES}[.,;|]?\s*",
        rf"{_LABEL}{_QUOTES}\{{title\}}{_QUOTES}[.,;|]?{_LABELLED_TEXT}\s*",
        r"(?:[#]+ \{title\}|([\"'*_]+)\{title\}\1)[:.,]?\s*",
        r"\{title\}\s*[:.,;|\u2013\u2014-]\s+",
    )
]
"""A title with its tags, brackets, label, quotes, or with the sign after it. A label of the whole passage stays."""


def without_title(passage: str) -> str:
    """Return the template of a passage without a title: no label, bracket or sign of the title is left."""
    for pattern in _TITLES:
        while match := pattern.search(passage):
            before, after = passage[: match.start()], passage[match.end() :]
            passage = before + after if after else before.rstrip(" \n-|")
    return passage.replace("{title}\n", "").replace("{title}", "")

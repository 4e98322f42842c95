"""The Markdown guides of the project: their blocks of code, the commands in them, their sections, anchors and links."""

import functools
import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("", "erag_ray", "jobs", "notebooks", "tests")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
FILE_NAME = re.compile(r"# (\w+\.(?:py|yaml))\b")


def guides() -> list[pathlib.Path]:
    """Return all Markdown files but the reports that tests compare with."""
    files = {file for folder in FOLDERS for file in (ROOT / folder).glob("**/*.md" if folder else "*.md")}
    return sorted(file for file in files if "golden" not in file.parts)


@functools.cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(language: str, text: str | None = None) -> list[str]:
    """Return the blocks of code in a language, of all guides or of a text."""
    texts = [text_of(str(file.relative_to(ROOT))) for file in guides()] if text is None else [text]
    return [body for name, body in BLOCK.findall("\n".join(texts)) if name == language]


def files_of(language: str) -> dict[str, str]:
    """Return the blocks that begin with a comment that names a file: its name -> its text."""
    named = [(found[1], body) for body in blocks(language) if (found := FILE_NAME.match(body))]
    files = dict(named)
    assert len(files) == len(named), "two blocks name one file"
    return files


def job_commands() -> list[str]:
    """Return every distinct command of a job, without `ray job submit` before it."""
    lines = [line for body in blocks("bash") for line in body.replace("\\\n", " ").splitlines()]
    commands = [re.sub(r"^ray job submit .*? -- ", "", line).strip() for line in lines]
    return list(dict.fromkeys(command for command in commands if re.match("python jobs/|erag-ray ", command)))


def section(name: str, title: str) -> str:
    """Return a section of a guide, up to the next heading of its level or a higher one.

    Raises:
        AssertionError: there is none, or several.
    """
    text = text_of(name)
    without_code = BLOCK.sub(lambda block: " " * len(block[0]), text)
    headings = [
        (len(found[1]), found[2], found.start(), found.end()) for found in HEADING.finditer(without_code)
    ]
    ((level, _, _, start),) = [heading for heading in headings if heading[1] == title]
    later = [begin for other, _, begin, _ in headings if begin > start and other <= level]
    return text[start : min(later, default=len(text))]


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of all rows of Markdown tables in a text, without their heads."""
    lines = text.splitlines()
    is_rule = [bool(re.fullmatch(r"\|[-|: ]+\|", line)) for line in lines]
    rows = [
        line
        for index, line in enumerate(lines)
        if line.startswith("|") and not is_rule[index] and not (index + 1 < len(lines) and is_rule[index + 1])
    ]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def anchors(text: str, level: int | None = None) -> set[str]:
    """Return the anchors that GitHub gives the headings of a text, or those of one level."""
    counts: dict[str, int] = {}
    names = set()
    for marks, title in HEADING.findall(BLOCK.sub("", text)):
        name = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        count = counts.get(name, 0)
        counts[name] = count + 1
        if level in (None, len(marks)):
            names.add(f"{name}-{count}" if count else name)
    return names


def links(text: str) -> Iterator[str]:
    """Yield the targets of all links and pictures outside of blocks of code."""
    yield from LINK.findall(BLOCK.sub("", text))

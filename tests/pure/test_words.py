"""The words of identifiers and of the first words of docstrings: those of the field, and no private dialect."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FILES = [*sorted((ROOT / "erag_ray").rglob("*.py")), *sorted((ROOT / "jobs").rglob("*.py"))]
# a word for anything, where a noun of the thing says more
VAGUE = {"found", "made", "some", "kept", "own", "taken", "held"}
# words that the field has another word for: see the glossary of erag_ray/README.md
DIALECT = {
    "alone": "single_document",
    "together": "end_to_end",
    "asks": "requests",
    "fusion": "encoder_cache, or rrf",
    "identity": "fingerprint",
    "place": "location, index or position",
    "resident": "process_memory",
    "into_bytes": "quantize",
}
# not even as a part of a longer name
NEVER = {
    "told": "log, message or output",
    "said": "output, message or log",
    "asked": "requested, or requests",
    "golds": "gold_answers",
    "unseal": "invalidate",
    "judging": "label or evaluate",
    "claiming": "lock",
    "reaching": "check_access",
    "rehearsing": "dry_run",
    "sanity": "retrieval_measures",
    "leaving": "eviction",
}
BAD_START = re.compile(r"(What|That|Those|Which|Whatever|So|Some|Their|Them|As|[a-z]+)\b")
"""No verb and no noun, or no capital; ``float32`` and ``eRAG`` are names."""

TELLS = re.compile(
    r"(?<!there )\b(is|are|was|were) (no|none)\b(?! longer| more)|\b(stands?|lies|goes? on|alone|in place of|so many"
    r"|other than|beside|holds|as they are|as it is|likewise|anyhow|seldom|untold|commonest)\b|what the reader writes"
)
"""Phrases of a dialect that plain English has others for; of 1,000 words of docstrings at most two are such."""


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a file binds, with their lines: not the columns of tables, which stand as keyword arguments."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield line, name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield line, name
            case ast.alias(asname=str(name)):
                yield line, name


def problem(name: str) -> str:
    """What is wrong with an identifier; "" if nothing is."""
    whole = name.strip("_").lower()
    parts = set(whole.split("_"))
    if whole in VAGUE:
        return f"{name}: use a noun of the thing"
    if whole in DIALECT:
        return f"{name}: use {DIALECT[whole]}"
    return next((f"{name}: use {NEVER[part]}" for part in sorted(parts & NEVER.keys())), "")


def problems(source: str) -> list[str]:
    tree = ast.parse(source)
    found = [(line, problem(name)) for line, name in identifiers(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text is not None and BAD_START.match(text):
                found.append((node.body[0].lineno, f"a docstring starts with {text.split()[0]!r}"))
    return [f"{line}: {text}" for line, text in sorted(found) if text]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_and_docstrings_are_in_the_words_of_the_field(path: pathlib.Path) -> None:
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("found = 1", "1: found: use a noun of the thing"),
        ("def f(_kept): ...", "1: _kept: use a noun of the thing"),
        ("class Alone: ...", "1: Alone: use single_document"),
        ("self.identity = 1", "1: identity: use fingerprint"),
        ("for num_asked in (): ...", "1: num_asked: use requested, or requests"),
        ("import a as golds", "1: golds: use gold_answers"),
        ("try: ...\nexcept E as e: ...\nis_told = 1", "3: is_told: use log, message or output"),
        ('"""What is read."""', "1: a docstring starts with 'What'"),
        ('def f():\n    """That which is read."""', "2: a docstring starts with 'That'"),
        ('def f():\n    """returns it."""', "2: a docstring starts with 'returns'"),
    ],
)
def test_a_word_of_the_dialect_is_named_with_its_line(source: str, line: str) -> None:
    assert problems(source) == [line]


@pytest.mark.parametrize(
    "source",
    [
        "frame.agg(alone=1, asked=2)",
        "run_id = 'alone'",
        "made_from = 1",
        '"""[rows, tokens]: `ids` of a batch."""',
        '"""eRAG\'s labels."""',
        'def f():\n    """``FILE:LINE``, for messages."""',
    ],
)
def test_columns_of_tables_texts_and_symbols_are_no_words_of_the_dialect(source: str) -> None:
    assert problems(source) == []


def package_of(path: pathlib.Path) -> str:
    top, *names = path.relative_to(ROOT).parts
    return names[0] if top == "erag_ray" else top


@pytest.mark.parametrize("package", sorted(set(map(package_of, FILES))))
def test_docstrings_are_plain_english(package: str) -> None:
    trees = [ast.parse(path.read_text()) for path in FILES if package_of(path) == package]
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    texts = [str(one.value) for one in constants if isinstance(one, ast.Constant)]
    tells = [tell[0] for text in texts for tell in TELLS.finditer(text)]
    assert len(tells) <= 2 * sum(len(text.split()) for text in texts) / 1000, tells

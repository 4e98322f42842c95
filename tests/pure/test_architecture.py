"""Imports go one way, heavy packages stay in their rooms, and importing has no effect."""

import ast
import functools
import graphlib
import importlib
import pathlib
import re
from collections.abc import Iterable, Iterator

import pytest
from heavy_packages import HEAVY, refusing
from scripts import python

import erag_ray
from erag_ray.models import MODELS, model_class

PACKAGE = pathlib.Path(erag_ray.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TEST_FILES = sorted(pathlib.Path(__file__).parents[1].rglob("*.py"))
ORDER = re.findall(r"\w+", re.findall(r"in import order:\n(.*?)\.\n", erag_ray.__doc__ or "", re.DOTALL)[0])
# a file in extras that no entry point names is shared by several
EXTRAS = set(re.findall(r"erag_ray\.extras\.(\w+)", (PACKAGE.parent / "pyproject.toml").read_text()))
# lines of Python; they may only fall
MOST_LINES = {"core": 33_545, "extras": 8_577, "tests": 42_288}
# what needs none of the heavy packages: evaluation, and readers that are functions or behind a server
LIGHT = ("analyses.every", "report.stage", "inputs.stage", "inference.stage", "models.served.model")


def parts_of(file: pathlib.Path) -> tuple[str, ...]:
    """("models", "base") for models/base.py, ("models",) for models/__init__.py."""
    names = file.relative_to(PACKAGE).with_suffix("").parts
    return names[:-1] if names[-1] == "__init__" else names


def imported(file: pathlib.Path) -> Iterator[str]:
    """Full names of all modules that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            yield node.module
            # `from package import module` imports a module too
            package, *inside = node.module.split(".")
            for name in (alias.name for alias in node.names if package == "erag_ray"):
                place = PACKAGE.joinpath(*inside, name)
                if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
                    yield f"{node.module}.{name}"


def own_imports(file: pathlib.Path) -> set[tuple[str, ...]]:
    return {tuple(name.split(".")[1:]) for name in imported(file) if name.split(".")[0] == "erag_ray"} - {()}


def test_the_package_names_its_rooms_in_order_and_no_room_is_missing() -> None:
    rooms = {parts_of(file)[0] for file in FILES if parts_of(file)}
    assert sorted([*ORDER, "extras"]) == sorted(rooms)


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(parts_of(file)) or "erag_ray")
def test_a_file_imports_only_rooms_above_its_own(file: pathlib.Path) -> None:
    if not parts_of(file):
        names = {parts[0] for parts in own_imports(file)}
        assert names == {"api"}, "erag_ray gives the interface of Python, which is imported at its first use"
        return
    room = parts_of(file)[0]
    others = {parts[0] for parts in own_imports(file)} - {room}
    order = [*ORDER, "extras"]
    wrong = {other for other in others if order.index(other) > order.index(room)}
    assert not wrong, f"{room} stands above {sorted(wrong)} and may not import from there"


def test_no_extra_imports_another() -> None:
    wrong = {
        (parts_of(file), names)
        for file in FILES
        if parts_of(file)[:1] == ("extras",)
        for names in own_imports(file)
        if names[0] == "extras" and names[1] != parts_of(file)[1] and names[1] in EXTRAS
    }
    assert not wrong


@functools.cache
def face_of(names: tuple[str, ...]) -> list[str]:
    """The names that a package gives to others, if it says so; a function may have the name of its module."""
    return list(getattr(importlib.import_module(".".join(["erag_ray", *names])), "__all__", ()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(parts_of(file)) or "erag_ray")
def test_a_file_imports_of_a_package_with_a_face_what_that_gives(file: pathlib.Path) -> None:
    inside = {
        names
        for names in own_imports(file)
        if len(names) > 1 and names[:-1] != parts_of(file)[: len(names) - 1]
        if not (PACKAGE.joinpath(*names) / "__init__.py").is_file()
        if face_of(names[:-1]) and names[-1] not in face_of(names[:-1])
    }
    assert not inside, f"import these from the package itself: {sorted(inside)}"


def test_the_map_names_every_room() -> None:
    text = (PACKAGE / "README.md").read_text()
    rooms = {
        f"{'/'.join(names)}/"
        if (PACKAGE.joinpath(*names) / "__init__.py").is_file()
        else f"{'/'.join(names)}.py"
        for names in map(parts_of, FILES)
        if len(names) == 1
    }
    assert not {room for room in rooms if f"`{room}`" not in text}


def num_lines(files: Iterable[pathlib.Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def test_the_house_does_not_grow() -> None:
    extras = [file for file in FILES if parts_of(file)[:1] == ("extras",)]
    lines = {
        "core": num_lines(FILES) - num_lines(extras),
        "extras": num_lines(extras),
        "tests": num_lines(TEST_FILES),
    }
    assert not {part: count for part, count in lines.items() if count > MOST_LINES[part]}, lines


def test_no_two_files_of_tests_have_one_name() -> None:
    names = [file.name for file in TEST_FILES]
    assert sorted(set(names)) == sorted(names), "pytest imports each by its name alone"


def test_the_parts_of_a_room_do_not_import_each_other_in_a_circle() -> None:
    graph = {parts_of(file): own_imports(file) for file in FILES if parts_of(file)}
    inside = {
        parts: {other for other in others if other[0] == parts[0]} - {parts}
        for parts, others in graph.items()
    }
    order = list(graphlib.TopologicalSorter(inside).static_order())
    assert set(order) == set(graph)


@pytest.mark.parametrize("package", HEAVY)
def test_heavy_packages_stay_in_their_rooms(package: str) -> None:
    found = {
        parts_of(file)[parts_of(file)[0] == "extras"]
        for file in FILES
        if any(name.split(".")[0] == package for name in imported(file))
    }
    assert found == HEAVY[package] & found
    assert found, f"nothing imports {package} any more: take it out of this test and of pyproject.toml"


WITHOUT_HEAVY = f"""{refusing(HEAVY)}
import importlib, logging, os
import polars  # sets a variable of its own
before = dict(os.environ), list(logging.getLogger().handlers), list(sys.argv)
for name in {LIGHT!r}:
    importlib.import_module("erag_ray." + name)
after = dict(os.environ), list(logging.getLogger().handlers), list(sys.argv)
sys.exit(0 if after == before else "importing changed the environment or the logging")
"""


def test_what_comes_after_the_reading_needs_no_torch_and_no_ray_and_imports_in_silence() -> None:
    done = python("-W", "error", "-c", WITHOUT_HEAVY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(parts_of(file)) or "erag_ray")
def test_nothing_runs_at_import(file: pathlib.Path) -> None:
    """A module is a docstring, imports, constants, functions, classes: no call for its effect, no branch, no loop."""
    allowed = (
        ast.Import,
        ast.ImportFrom,
        ast.Assign,
        ast.AnnAssign,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
    )
    module = ast.parse(file.read_text())
    assert ast.get_docstring(module), "a module opens with its docstring"
    # a constant may have a docstring too
    effects = [
        node
        for node in module.body
        if not isinstance(node, allowed)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    assert not [ast.unparse(node).splitlines()[0] for node in effects]


@pytest.mark.parametrize("kind", MODELS)
def test_no_model_stands_on_more_than_two_classes_of_ours(kind: str) -> None:
    own = [one for one in model_class(kind).__mro__[1:] if one.__module__.startswith("erag_ray.")]
    assert 1 <= len(own) <= 2

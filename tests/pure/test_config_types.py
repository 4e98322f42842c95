"""A value of a wrong type is one message that names its key, whether YAML, the command line or Python gives it."""

import dataclasses
import operator
import pathlib
import re
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml
from command_lines import refused

import erag_ray as er
from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.config.keys.names import bounds_in, config_in, field_hints, members_of
from erag_ray.config.keys.values import Keys, build
from erag_ray.config.reader import ReaderConfig
from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.train.config import TrainConfig
from erag_ray.support.errors import InputError

NAMED = {"retrievers": {"kind": "random"}, "corpora": {"passages": ["p.jsonl"]}}
"""Keys that hold configs by name, and what one of these needs."""
PROMPT = {"template": "{question} {passages}"}
WRONG: dict[Any, list[Any]] = {
    str: [["a"], {"a": 1}],
    int: ["ten", 2.5, [1], {"a": 1}, True],
    float: ["ten", [1], {"a": 1}, True],
    bool: ["ture", 3, [True]],
    list: ["erag", {"a": 1}],
    dict: ["a.trec", [1]],
    typing.Literal: ["nosuch", 7, ["a"]],
    dataclasses.dataclass: ["gpt-4", ["a"], 3],
}


GIVEN: dict[str, Any] = {
    "questions": [{"question": "Who?", "answers": ["Ann"]}],
    "reader": {"kind": "echo"},
    "runs": {"a": {"1": [("d1", "Ann built it.")]}},
}


def cases(kind: type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of a config with each wrong value of its type."""
    for name, hint in field_hints(kind).items():
        members = members_of(hint)
        allowed = {typing.get_origin(member) or member for member in members}
        accepted = {type(value) for value in [[], {}] if type(value) in allowed}
        accepted |= {dict} if dataclasses.is_dataclass(config_in(hint)) else set()
        first = members[0] if not dataclasses.is_dataclass(members[0]) else dataclasses.dataclass
        for value in WRONG[typing.get_origin(first) or first]:
            if type(value) not in accepted:
                yield (*path, name), value
        yield from cases(config_in(hint), (*path, name))
        if name in NAMED:
            yield from cases(typing.get_args(hint)[1], (*path, name, "x"))


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for place, name in reversed(list(enumerate(path))):
        needed = PROMPT if place and path[place - 1] == "prompt" else {}
        needed = NAMED[path[0]] if place == 2 and path[0] in NAMED else needed
        value = {**needed, name: value}
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [JobConfig, TrainConfig, GateConfig])
def test_a_wrong_type_in_a_file_is_one_message_with_its_line(
    kind: type, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, count = tmp_path / "job.yaml", 0
    for path, value in cases(kind):
        # any scalar of YAML is a text where a text is expected, and a whole number is a number
        file.write_text("# first line\n" + yaml.safe_dump(nested(path, value)))
        message = refused(capsys, "--config", str(file), kind=kind)
        assert "\n" not in message, (path, value, message)
        assert message.startswith(f"error: {file}:"), (path, value, message)
        assert f": {'.'.join(path)}: expected " in message, (path, value, message)
        assert ", got " in message
        count += 1
    assert count > 20


def test_a_wrong_type_on_the_command_line_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    for path, value in cases(JobConfig):
        key = ".".join(path)
        hint: Any = JobConfig
        for name in path:
            hint = field_hints(config_in(hint)).get(name) or typing.get_args(hint)[1]
        members = members_of(hint)
        if str in members:
            # any option is a text
            continue
        argv = [f"--{key}", yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()]
        needed = PROMPT if "prompt" in path[:-1] else NAMED.get(path[0], {}) if len(path) == 3 else {}
        above = ".".join(path[:-1])
        argv += [f"--{above}.{name}={item}" for name, item in needed.items() if name != path[-1]]
        message = refused(capsys, *argv)
        assert "\n" not in message, (path, value, message)
        assert message.startswith(f"error: {key}: expected "), (path, value, message)


def test_a_wrong_type_from_python_is_one_message_before_anything_is_written(tmp_path: pathlib.Path) -> None:
    given = {**GIVEN, "reader": er.Function(list, name="mine", revision="1")}
    arguments = {
        "queries", "runs", "retrievers", "passages", "outputs", "out", "reader", "judge", "auxiliary_reader",
    }  # fmt: skip
    for path, value in [
        *cases(JobConfig),
        (("depth",), "1"),
        (("cutoffs",), [1, "3"]),
        (("runs",), {1.1: "a.trec"}),
    ]:
        if path in {("reader",), ("judge",), ("auxiliary_reader",), ("out",)} or (
            path[0] in arguments and len(path) == 1
        ):
            continue
        keys = nested(path, value)
        if path[0] == "reader":
            keys["reader"].setdefault("kind", "echo")
        with pytest.raises(InputError) as caught:
            er.compare(**{**given, "out": str(tmp_path / "out"), **keys})
        assert len(caught.value.problems) == 1, (path, value, caught.value)
        (problem,) = caught.value.problems
        assert problem.startswith(".".join(path)), (path, value, problem)
        assert ": expected " in problem, (path, value, problem)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"annotators": "erag"},
         "annotators: expected a list of texts, got 'erag'. Write annotators: [erag]"),
        ({"depth": "1"}, "depth: expected a whole number, got '1'. Write 1 without quotes"),
        ({"reader": "gpt-4"},
         'reader: \'gpt-4\', not a reader. Write reader={"kind": "causal", "model": \'gpt-4\'}'),
        ({"judge": 7}, "judge: a int, not a reader"),
        ({"auxiliary_reader": "t5"}, "auxiliary_reader: 't5', not a reader"),
        ({"runs": {1.1: {"1": ["d1"]}}}, "runs: a mapping whose keys are not all strings; it must be"),
        ({"retrievers": {True: {"kind": "bm25"}}},
         "retrievers: a mapping whose keys are not all strings; it must be"),
        ({"run_corpora": {1.1: "x"}}, "run_corpora: the name 1.1 is not a text. Write '1.1'"),
        ({"out": 7}, "out: expected a path, got 7"),
    ],
)  # fmt: skip
def test_a_wrong_argument_of_python_names_the_nearest_right_form(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        er.compare(**{**GIVEN, **arguments})
    (problem,) = caught.value.problems
    assert problem.startswith(message)


def test_a_reader_made_in_python_is_checked_where_it_is_made() -> None:
    for make in (er.Served, er.Causal, ReaderConfig):
        with pytest.raises(InputError, match=r"batch_size: expected a whole .* or null, got '8'\. Write 8"):
            make(model="m", batch_size="8")
    with pytest.raises(InputError, match=r"cutoffs: expected a list of whole numbers, got 'all'$"):
        JobConfig(cutoffs="all")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="k1: expected a number, got 'x'"):
        RetrieverConfig(kind="bm25", k1="x")  # type: ignore[arg-type]


def test_values_of_numpy_paths_and_tuples_are_taken(tmp_path: pathlib.Path) -> None:
    values = {
        "depth": np.int64(5),
        "confidence": np.float32(0.5),
        "progress": np.bool_(False),
        "cutoffs": np.array([1, 3]),
        "queries": (tmp_path / "q.jsonl",),
        "out": tmp_path,
    }
    config = build(JobConfig, values)
    expected = JobConfig(
        depth=5,
        confidence=0.5,
        progress=False,
        cutoffs=[1, 3],
        queries=[f"{tmp_path}/q.jsonl"],
        out=str(tmp_path),
    )
    assert config == expected
    assert [type(getattr(config, name)) for name in values] == [int, float, bool, list, list, str]


def every_config(kind: type = Keys) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from every_config(one)


@pytest.mark.parametrize("kind", sorted({*every_config()}, key=str), ids=lambda kind: kind.__name__)
def test_a_value_beyond_a_bound_is_refused_and_one_within_is_not(kind: type) -> None:
    for name, hint in field_hints(kind, with_bounds=True).items():
        shape = str(hint)
        step = 1 if "int" in shape else 0.001
        for sign, bound in bounds_in(hint).items():
            for value in (bound - step, bound, bound + step):
                given = [value] if "list[" in shape else {"input": value} if "dict[" in shape else value
                told = list[str]()
                try:
                    build(kind, {name: given})
                except InputError as error:
                    told = [one for one in error.problems if re.match(rf"{name}\S* must .*, got ", one)]
                is_within = getattr(operator, sign)(value, bound)
                assert (not told) == is_within or len(bounds_in(hint)) > 1, (name, value, told)
                assert not told or told[0].endswith(f", got {value}")


NAMES = [
    "no", "on", "yes", "off", "y", "1", "1.1", "0x1", "1e3", "null", "~", "true", "2024-01-01", "12:30", ".nan", "=",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_are_the_text_that_is_written(name: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "job.yaml"
    value = "x" if name in ("null", "~", "12:30") else name
    lines = [
        f"runs: {{{name}: {name}.trec}}",
        f"run_corpora: {{{name}: {value}}}",
        *(f"{key}: [{value}]" for key in ("filters", "annotators")),
        *(f"{key}: {value}" for key in ("dataset", "score", "language", "auxiliary_reader.revision")),
    ]
    file.write_text("\n".join(lines))
    config = parse(JobConfig, "", ["--config", str(file)])
    assert (config.runs, config.run_corpora) == ({name: f"{name}.trec"}, {name: value})
    assert [*config.filters, *config.annotators, config.dataset, config.score, config.language] == [value] * 5
    assert config.auxiliary_reader.revision == value
    if name == "=":
        # on a command line it ends the key
        return
    option = parse(JobConfig, "", [f"--runs.{name}", "a.trec", f"--queries=[{value}]", f"--dataset={value}"])
    assert (option.runs, option.queries, option.dataset) == ({name: "a.trec"}, [value], value)


def test_a_relative_path_that_is_not_there_names_the_folder(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused(capsys, "--config", "no.yaml")
    assert message.endswith(f"No such file or directory (looked for in the working folder, {tmp_path})")
    message = refused(capsys, "--reader.prompt", "no.yaml")
    assert message.endswith(f"(looked for in the working folder, {tmp_path})")

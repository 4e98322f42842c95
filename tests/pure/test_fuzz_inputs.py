"""Files of questions, passages, runs and pages, damaged at random: a right table, or a message that names the place.

The oracles of `fuzz_oracles` read each format again in the plainest way; where a reader finds no problem, both agree.
"""

from __future__ import annotations

import pathlib
import tempfile

import pytest
from fuzz_oracles import LINES, OBJECTS, TEXTS, Oracle, Read
from fuzzing import as_json, as_lines, check_outcome, damaged, odd_records, tried
from hypothesis import given
from hypothesis import strategies as st

from erag_ray.data.files.diagnostics import Diagnostics


def check(file: str, data: bytes, read: Read, oracle: Oracle) -> Diagnostics:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / file
        path.write_bytes(data)
        diagnostics = Diagnostics()
        check_outcome(diagnostics, read(path, diagnostics), lambda: oracle(data), path)
    return diagnostics


@pytest.mark.parametrize("form", TEXTS)
def test_the_oracles_agree_on_whole_files(form: str) -> None:
    file, data, read, oracle = TEXTS[form]
    assert oracle(data) != []
    assert check(file, data, read, oracle).errors == ()


@pytest.mark.parametrize("form", TEXTS)
@tried(20)
@given(data=st.data())
def test_damaged_bytes(form: str, data: st.DataObject) -> None:
    file, content, read, oracle = TEXTS[form]
    check(file, data.draw(damaged(content)), read, oracle)


@pytest.mark.parametrize("form", LINES)
@tried(30)
@given(data=st.data())
def test_odd_lines(form: str, data: st.DataObject) -> None:
    file, records, read, oracle = LINES[form]
    check(file, as_lines(data.draw(odd_records(records))), read, oracle)


@pytest.mark.parametrize("form", OBJECTS)
@tried(30)
@given(data=st.data())
def test_odd_objects(form: str, data: st.DataObject) -> None:
    file, content, read, oracle = OBJECTS[form]
    (changed,) = data.draw(odd_records([content]).filter(lambda found: len(found) == 1))
    check(file, as_json(changed).encode(), read, oracle)

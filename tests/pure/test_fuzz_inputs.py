"""Files of questions, passages, runs and pages, damaged at random: tables that conform, or messages that name a place.

What each form must give is by hand in the tests of the loaders; here no damage may end in an exception.
"""

import pytest
from fuzz_forms import LINES, OBJECTS, TEXTS, check
from fuzzing import as_json, as_lines, damaged, odd_records, tried
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("form", TEXTS)
def test_whole_files_are_read(form: str) -> None:
    rows, diagnostics = check(*TEXTS[form])
    assert rows != []
    assert diagnostics.errors == ()


@pytest.mark.parametrize("form", TEXTS)
@tried(30)
@given(data=st.data())
def test_damaged_bytes(form: str, data: st.DataObject) -> None:
    file, content, read = TEXTS[form]
    check(file, data.draw(damaged(content)), read)


@pytest.mark.parametrize("form", LINES)
@tried(30)
@given(data=st.data())
def test_odd_lines(form: str, data: st.DataObject) -> None:
    file, records, read = LINES[form]
    check(file, as_lines(data.draw(odd_records(records))), read)


@pytest.mark.parametrize("form", OBJECTS)
@tried(30)
@given(data=st.data())
def test_odd_objects(form: str, data: st.DataObject) -> None:
    file, content, read = OBJECTS[form]
    (changed,) = data.draw(odd_records([content]).filter(lambda found: len(found) == 1))
    check(file, as_json(changed).encode(), read)

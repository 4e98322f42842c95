"""Messages reach a user of the command line on standard error, and a Python program by logging."""

import logging
import subprocess
import sys

import pytest

from erag_ray.support.logs import PACKAGE, on_stderr, say

MESSAGE = """
import logging, sys
from erag_ray.support.logs import say

logging.basicConfig(level=logging.INFO, format="%(name)s|%(message)s", stream=sys.stdout)
say("one", "100 %s")
"""


def test_a_job_shows_each_message_once_as_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with on_stderr(), on_stderr():
        say("one", "100 %s")
        logging.getLogger("erag_ray.support.user_code").debug("for a file")
        logging.getLogger("another").warning("of another package")
    assert capsys.readouterr().err == "one\n100 %s\n"


def test_a_job_leaves_the_logging_of_its_process_as_it_was() -> None:
    handlers, PACKAGE.handlers = PACKAGE.handlers, []
    before = (PACKAGE.level, PACKAGE.propagate)
    try:
        with on_stderr():
            assert len(PACKAGE.handlers) == 1
        assert PACKAGE.handlers == []
        assert (PACKAGE.level, PACKAGE.propagate) == before
    finally:
        PACKAGE.handlers = handlers


def test_a_program_gets_the_messages_by_logging() -> None:
    done = subprocess.run([sys.executable, "-c", MESSAGE], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("erag_ray|one\nerag_ray|100 %s\n", "")

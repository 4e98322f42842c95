"""What a wrong command line is told."""

import pytest

from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig


def refused(capsys: pytest.CaptureFixture[str], *argv: str, kind: type = JobConfig) -> str:
    """The message about a command line, a line for each problem, without the line on the usage."""
    with pytest.raises(SystemExit) as ended:
        parse(kind, "A job.", argv)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    usage, _, message = err.partition("\n")
    assert (out, usage[:7]) == ("", "usage: ")
    return message.removesuffix("\n")

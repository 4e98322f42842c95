"""Secrets of a config: no form of a key is in a message, a traceback or an answer, and nothing else is changed."""

import base64
import html
import json
import pathlib
import pickle
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import python

from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.logs import on_stderr, say
from erag_ray.support.masking import Secret, masked, masked_message, masked_traceback
from erag_ray.support.user_code import fault_of, one_line

KEY = "sk-proj/Ab+9=\"quoted'&<end>\\%~_0123"
ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "in a header": lambda key: f"Bearer {key}",
    "percent": lambda key: urllib.parse.quote(key, safe=""),
    "percent, slashes kept": urllib.parse.quote,
    "percent, twice": lambda key: urllib.parse.quote(urllib.parse.quote(key, safe=""), safe=""),
    "percent, all": lambda key: "".join(f"%{ord(one):02x}" for one in key),
    "form": urllib.parse.quote_plus,
    "JSON": json.dumps,
    "JSON with escaped slashes": lambda key: json.dumps(key).replace("/", "\\/"),
    "JSON, all escaped": lambda key: "".join(f"\\u{ord(one):04X}" for one in key),
    "Python": lambda key: repr(key.encode()),
    "HTML": html.escape,
    "HTML, numbers": lambda key: "".join(f"&#{ord(one)};" if one in "/'\"&" else one for one in key),
    "hexadecimal": lambda key: key.encode().hex(),
    "hexadecimal, capitals": lambda key: key.encode().hex().upper(),
    **{
        f"base64 after {before!r} before {after!r}": lambda key, before=before, after=after: base64.b64encode(
            f"{before}{key}{after}".encode()
        ).decode()
        for before in ("", "u", "me", "user:")
        for after in ("", "1", "22")
    },
    "base64 of URLs": lambda key: base64.urlsafe_b64encode(f"{key}>>>???".encode()).decode(),
    "base64 in a URL": lambda key: urllib.parse.quote(base64.b64encode(key.encode()).decode(), safe=""),
}


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """A key that the job has read."""
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    return Secret("reader.api_key_env", "MY_KEY").value


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_key_is_masked_in_every_encoding(key: str, encoding: str) -> None:
    text = f"401: wrong key {ENCODINGS[encoding](key)} of Ada"
    found = masked(text)
    assert found.startswith("401: wrong key ")
    assert found.endswith(" of Ada")
    assert "***" in found
    # what is left of a base64 text are its ends, which depend on what is around the key
    assert len(found) < len("401: wrong key *** of Ada") + 24
    assert masked({"a": [text, 1, None], text: {}}) == {"a": [found, 1, None], found: {}}


@given(st.text(max_size=40))
def test_other_texts_stay(text: str) -> None:
    assert masked(text) == text
    if "@" not in text:
        assert masked_message(text) == text


def test_placeholders_are_words_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "EMPTY")
    assert Secret("reader.api_key_env", "MY_KEY").value == "EMPTY"
    assert masked("the result is EMPTY") == "the result is EMPTY"


def test_a_secret_is_never_printed(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("reader.api_key_env", "MY_KEY")
    assert [str(secret), repr([secret]), f"{secret}"] == ["***", "[***]", "***"]
    for value, fault in (
        (" ", "is not set on node"),
        ("sk-live\n0123456", "line breaks"),
        ("sk-live-é", "ASCII"),
    ):
        monkeypatch.setenv("MY_KEY", value)
        with pytest.raises(ValueError, match=f"^reader.api_key_env: .* MY_KEY .*{fault}") as raised:
            Secret("reader.api_key_env", "MY_KEY")
        assert "sk-live" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://AKIA:ab/cd+ef@bucket/x is away", "s3://***@bucket/x is away"),
        ("(https://me:pass@host/v1)", "(https://***@host/v1)"),
        ("git+https://ghp_1234@host/x", "git+https://***@host/x"),
        ("abfs://container@account.net/x", "abfs://container@account.net/x"),
        (
            "http://localhost:8000/v1: P@10 of s3://bucket/a@b",
            "http://localhost:8000/v1: P@10 of s3://bucket/a@b",
        ),
    ],
)
def test_users_and_passwords_of_addresses_are_masked_in_messages(text: str, expected: str) -> None:
    assert masked_message(text) == expected
    assert JobError(text).message == expected


def test_all_that_a_job_says_is_masked(
    key: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise OSError(f"no access with {key}")

    long = "x" * (300 - len("OSError: ") - 20) + key  # a cut inside the key would leave half of it
    try:
        fails()
    except OSError as error:
        said = [str(fault_of(error, fails)), masked_traceback(error), one_line(f"OSError: {long}")]
    said += [
        str(InputError([f"a: {key}"])),
        str(JobError(key)),
        str(pickle.loads(pickle.dumps(JobError(key)))),
    ]
    with on_stderr():
        say(f"asked with {key}")
    said.append(capsys.readouterr().err)
    assert len(said) == 7
    assert all("***" in text for text in said)
    assert not [text for text in said if key in text or key[:12] in text]


PROGRAM = """
import sys
from erag_ray.cli.run import run_job
from erag_ray.config.job import JobConfig
from erag_ray.support.masking import Secret

def main(config):
    key = Secret("reader.api_key_env", "MY_KEY").value
    raise RuntimeError(f"a bug shows {key}") from OSError(f"401: {key}")

run_job(JobConfig, main, "A job.")
"""


def test_the_traceback_of_a_bug_is_masked(key: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "q.jsonl").write_text("")
    arguments = ["--queries", "[q.jsonl]", "--out", "out", "--cache_dir", "cache"]
    done = python("-c", PROGRAM, *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: a bug shows ***" in done.stderr
    assert "OSError: 401: ***" in done.stderr
    assert key not in done.stderr


URIS = [
    "s3://AKIAEXAMPLE:hunter2hunter2@bucket/place",
    "s3://AKIAEXAMPLE:hunter2/hunter2+x@bucket/place",
    "s3://AKIAEXAMPLE:123/hunter2@bucket",
    "s3://AKIAEXAMPLE:hunter2%2Fx%40bucket",
    "s3://hunter2hunter2@bucket/place",
    "gs://me:hunter2/a/b@bucket",
    "abfs://me:hunter2@account/place",
]


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.parametrize("key", ["cache_dir", "out", "passages", "runs"])
def test_a_path_with_a_secret_is_refused_without_saying_it(
    key: str, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values: dict[str, Any] = {"passages": [uri], "runs": {"bm25": uri}}
    value = values.get(key, uri)
    with pytest.raises(SystemExit):
        parse(
            JobConfig, "", ["--queries", "[q.jsonl]", f"--{key}", json.dumps(value) if key in values else uri]
        )
    with pytest.raises(ValueError, match="contains a user or a secret") as raised:
        JobConfig(queries=["q.jsonl"], **{key: value})
    for text in (capsys.readouterr().err, str(raised.value)):
        assert re.search(r"a (s3|gs|abfs):// path contains a user or a secret", text)
        assert "hunter2" not in text


@pytest.mark.parametrize(
    "uri",
    [
        "abfss://container@account.dfs.core.windows.net/store",
        "s3://bucket/a@b:c",
        "hdfs://me@host:9000/x",
        "memory://x",
    ],
)
def test_a_path_without_a_secret_is_accepted(uri: str) -> None:
    assert parse(JobConfig, "", ["--queries", "[q.jsonl]", "--cache_dir", uri]).cache_dir == uri


@pytest.mark.parametrize(
    "keys",
    [
        "reader: {kind: served, api_key_env: sk-hunter2hunter2}",
        "reader: {kind: served, api_key_env: [sk-hunter2hunter2]}",
        "judge: {kind: served, api_key_env: {key: sk-hunter2hunter2}}",
        "retrievers: {team: {kind: http, url: 'http://h/', revision: x, api_key_env: [sk-hunter2hunter2]}}",
        "retrievers: {team: {kind: http, url: 'http://me:hunter2@h/', revision: x}}",
        "ray_address: [ray://me:hunter2@host]",
    ],
)
def test_a_key_at_the_wrong_place_is_not_repeated(
    keys: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(f"queries: [q.jsonl]\n{keys}\n")
    with pytest.raises(SystemExit):
        parse(JobConfig, "", ["--config", str(tmp_path / "job.yaml")])
    said = capsys.readouterr().err
    assert "hunter2" not in said
    assert f"{tmp_path}/job.yaml:2: " in said

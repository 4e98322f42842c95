"""One YAML file and the command line -> a job's config, or exit code 2 and a message that names the key."""

import dataclasses
import pathlib

import pytest
from command_lines import refused

from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.extras.train.config import TrainConfig

YAML = """
queries: [questions.jsonl]
runs:
  bm25: bm25.trec
reader:
  kind: causal
  model: some/model
  dtype: bfloat16
depth: 5
cutoffs: [1, 5]
num_queries: null
"""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    (tmp_path / "job.yaml").write_text(YAML)
    return str(tmp_path / "job.yaml")


def test_without_a_file_every_key_has_its_default() -> None:
    assert parse(JobConfig, "A job.", []) == JobConfig()


def test_a_file_sets_keys_and_leaves_the_others(file: str) -> None:
    reader = ReaderConfig(kind="causal", model="some/model", dtype="bfloat16")
    expected = JobConfig(
        queries=["questions.jsonl"], runs={"bm25": "bm25.trec"}, reader=reader, depth=5, cutoffs=[1, 5]
    )
    assert parse(JobConfig, "A job.", ["--config", file]) == expected


def test_an_override_replaces_its_key_alone(file: str) -> None:
    plain = parse(JobConfig, "A job.", ["--config", file])
    overrides = ["--depth", "7", "--reader.dtype", "float32", "--num_queries=60", "--cutoffs", "[2, 3]"]
    assert parse(JobConfig, "A job.", ["--config", file, *overrides]) == dataclasses.replace(
        plain,
        depth=7,
        num_queries=60,
        cutoffs=[2, 3],
        reader=ReaderConfig(kind="causal", model="some/model", dtype="float32"),
    )


def test_one_more_run_is_one_more_option(file: str) -> None:
    found = parse(
        JobConfig, "A job.", ["--config", file, "--runs.minilm", "minilm.trec", "--runs.gtr=gtr.trec"]
    )
    assert found.runs == {"bm25": "bm25.trec", "minilm": "minilm.trec", "gtr": "gtr.trec"}


def test_a_later_file_overrides_an_earlier_one(file: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "more.yaml").write_text("depth: 9\nreader: {num_examples: 1}\n")
    found = parse(JobConfig, "A job.", ["--config", file, "--config", str(tmp_path / "more.yaml")])
    assert (found.depth, found.reader.num_examples, found.reader.kind) == (9, 1, "causal")


def test_a_file_that_is_missing_or_not_text_is_an_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "missing.yaml" in refused(capsys, "--config", str(tmp_path / "missing.yaml"))
    assert "not a file" in refused(capsys, "--config", str(tmp_path))
    (tmp_path / "wrong.yaml").write_bytes(b"depth: 5\nout: caf\xe9\n")
    assert "wrong.yaml:2: not UTF-8" in refused(capsys, "--config", str(tmp_path / "wrong.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # no YAML
        ("depth: [\n", "2: not YAML: expected the node content, but found '<stream end>' (while parsing a flow node)"),
        ("reader:\n\tkind: echo\n", "2: not YAML: found character '\\t' that cannot start any token (while scanning "
         "for the next token); indent with blanks, not with tabs"),
        ("depth 5\nout: a\n", "2: not YAML: mapping values are not allowed here; a colon is missing in the line "
         "before, or this value needs quotes"),
        ("depth: 5\nout\nseed: 1\n", "3: not YAML: could not find expected ':' (while scanning a simple key from line "
         "2 on); a colon is missing"),
        ("depth: 5\nout: 'a\n\n", "4: not YAML: found unexpected end of stream (while scanning a quoted scalar from "
         "line 2 on)"),
        ("out: *a\n", "1: not YAML: found undefined alias 'a'"),
        ("depth: 5\n---\nout: a\n", "2: not YAML: but found another document (expected a single document in the stream "
         "from line 1 on)"),
        ("out: a\nseed: \x01\n", "2: not YAML: the character #x0001 is not allowed"),
        ("out: !!python/name:os.system\n", "1: not plain YAML: the tag tag:yaml.org,2002:python/name:os.system is not "
         "read"),
        ("runs: &a {<<: *a}\n", " is nested too deep, or holds itself"),
        # keys
        ("# a file\ndepht: 5\n", "2: unknown key depht. Did you mean depth?"),
        ("reader:\n  kind: echo\n  modle: x\n", "3: unknown key reader.modle. Did you mean reader.model?"),
        ("reader.modle: x\n", "1: unknown key reader.modle. Did you mean reader.model?"),
        ("retrievers:\n  a:\n    kind: bm25\n    k9: 1\n", "4: unknown key retrievers.a.k9"),
        ("1: x\n", "1: unknown key 1"),
        ("? [a]\n: b\n", "1: a key must be a text"),
        ("runs:\n  bm25: a.trec\n  bm25: b.trec\n", "3: the key bm25 comes twice"),
        # values of no use
        ("out: a\nretrievers:\n", "2: retrievers has no value; give one, or leave the key out"),
        ("out: a\nreader: {kind: }\n", "2: reader.kind has no value; give one, or leave the key out"),
        ("runs:\n  bm25:\n", "2: runs.bm25 has no value; give one, or leave the key out"),
        ("out: a\nreader:\n  - kind: echo\n", "2: reader: expected keys (kind, model, options, ...), got a list"),
        # values of a wrong type
        ("out: a\nreader:\n  dtype: int3\n", "3: reader.dtype: expected one of float32, tf32, bfloat16, float16, "
         "int8, got int3. Did you mean int8?"),
        ("out: a\nnum_queries: x\n", "2: num_queries: expected a whole number or null, got x"),
        ("out: a\ncutoffs:\n  - 1\n  - two\n", "4: cutoffs[1]: expected a whole number, got two"),
        ("depth: '5'\n", "1: depth: expected a whole number, got '5'. Write 5 without quotes"),
        ("progress: fasle\n", "1: progress: expected true or false, got fasle. Did you mean false?"),
        ("annotators: erag\n", "1: annotators: expected a list of texts, got erag. Write annotators: [erag]"),
        ("reader: gpt-4\n", "1: reader: expected keys (kind, model, options, ...), got gpt-4. Write reader.model: "
         "gpt-4"),
        ("retrievers: {a: bm25}\n", "1: retrievers.a: expected keys (kind, model, searches, ...), got bm25. Write "
         "retrievers.a.kind: bm25"),
        ("reader: {model: {name: x}}\n", "1: reader.model: expected a text or null, got keys (name)"),
        ("runs: a.trec\n", "1: runs: expected names with values, got a.trec. Write runs.NAME: a.trec"),
        ("retrievers:\n  a: {kind: bm25, k1: 1}\n  b:\n    kind: bm25\n    k1: x\n",
         "5: retrievers.b.k1: expected a number, got x"),
        # values out of range
        ('passages: ["a\\0b"]', "1: passages[0]: 'a\\x00b': a path cannot hold this character"),
        ("depth: null\n", "1: depth has no value; give one, or leave the key out"),
        ("confidence: .nan\n", "1: confidence: expected a number, got .nan"),
        ("reader: {prompt: poem}\n", "1: reader.prompt must be one of chat, plain, question_first, t5, a YAML file "
         "(.yaml, .yml), or keys, got poem"),
        ("reader:\n  prompt:\n    template: '{passages}'\n", "3: reader.prompt.template must contain {question}"),
        ("reader:\n  prompt:\n    passage: '{text}'\n", "2: reader.prompt must have the key template"),
        ("out: a\nreader:\n  kind: echo\n  num_examples: 9\n", "4: reader.num_examples must be at most 2, got 9"),
        ("depth: 3\ncutoffs: [1]\nend_to_end_depths: [1, 4]\n", "3: end_to_end_depths: 4 is not within 1..depth=3"),
        ("num_readers: 2\nmax_readers: 1\n", "2: max_readers: 1 is less than num_readers 2"),
        ("retrievers:\n  a:\n    kind: bm25\n    b: 7\n", "4: retrievers.a.b must be at most 1, got 7"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_told_with_its_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    error = refused(capsys, "--config", str(tmp_path / "job.yaml"))
    assert error == f"error: {tmp_path}/job.yaml:{message}"


def test_of_two_files_the_one_that_is_wrong_is_named(
    file: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more.yaml").write_text("# more\ndepth: two\n")
    both = ["--config", file, "--config", str(tmp_path / "more.yaml")]
    assert f"{tmp_path}/more.yaml:2: depth: expected a whole number, got two" in refused(capsys, *both)
    # what comes from the command line has no line
    for option in (["--depth", "three"], ["--depth=three"]):
        text = refused(capsys, "--config", file, *option)
        assert "error: depth: expected a whole number, got three" in text
    assert "error: depth must be at least 1, got 0" in refused(capsys, "--config", file, "--depth", "0")


def test_stages_of_a_training_have_one_name_and_a_line_each(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.yaml").write_text(
        "curriculum:\n- epochs: 1\n  num_gold: 2\n- epochs: x\n  num_gold: 1\n"
    )
    told = refused(capsys, "--config", str(tmp_path / "train.yaml"), kind=TrainConfig)
    message = "curriculum[1].epochs: expected a whole number or null, got x"
    assert told == f"error: {tmp_path}/train.yaml:4: {message}"


def test_what_yaml_offers_besides_is_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "runs: &runs {a: a.trec}\nreader.kind: ipa\nreader.model: x\njudge: {<<: {model: y}}\nscore:\n"
    )
    found = parse(JobConfig, "A job.", ["--config", str(tmp_path / "job.yaml")])
    assert (found.reader.kind, found.reader.model, found.judge.model, found.score) == ("ipa", "x", "y", None)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        JobConfig().depth = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        JobConfig().reader.kind = "echo"


def test_end_to_end_depths_ascend_without_repeats() -> None:
    assert JobConfig(depth=10, end_to_end_depths=[5, 1, 5, 10]).depths == [1, 5, 10]
    # none given: the depth itself
    assert JobConfig(depth=7).depths == [7]


def test_variables_and_the_home_folder_in_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERAG_RAY_DATA", "/data")
    monkeypatch.setenv("HOME", "/home/ada")
    options = [
        "--queries=[$ERAG_RAY_DATA/q.jsonl, ~/q.jsonl]",
        "--qrels=['${ERAG_RAY_DATA}/qrels.tsv']",
        "--triviaqa_questions=[~/t.json]",
        "--passages=[$ERAG_RAY_DATA/p.parquet, plain.jsonl]",
        "--runs.bm25=${ERAG_RAY_DATA}/bm25.trec",
        "--reader.model=$ERAG_RAY_DATA/model",
        "--out=~/out",
        "--cache_dir=$ERAG_RAY_DATA/store",
    ]
    found = parse(JobConfig, "A job.", options)
    assert found.queries == ["/data/q.jsonl", "/home/ada/q.jsonl"]
    assert found.qrels == ["/data/qrels.tsv"]
    assert found.triviaqa_questions == ["/home/ada/t.json"]
    assert found.passages == ["/data/p.parquet", "plain.jsonl"]
    assert found.runs == {"bm25": "/data/bm25.trec"}
    assert found.reader.model == "/data/model"
    assert (found.out, found.cache_dir) == ("/home/ada/out", "/data/store")


@pytest.mark.parametrize("key", ["queries[0]", "runs.a", "reader.model", "out", "cache_dir"])
def test_a_variable_that_is_not_set_is_named_with_its_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.delenv("NO_SUCH_FOLDER", raising=False)
    path = "$NO_SUCH_FOLDER/x"
    option = f"--queries=[{path}]" if key == "queries[0]" else f"--{key}={path}"
    message = refused(capsys, option)
    assert message == f"error: {key}: {path}: the environment variable NO_SUCH_FOLDER is not set"

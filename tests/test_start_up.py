"""What a job answers before it imports anything heavy: its help, a wrong command line, a wrong file."""

import json
import pathlib
import re
import sys

import pytest
from bench.config import BenchmarkConfig
from command_lines import refused
from scripts import ROOT, python

from erag_ray.cli.run import main
from erag_ray.config.command_line.parsing import parse
from erag_ray.config.job import JobConfig
from erag_ray.config.keys.names import GONE, UNUSED, all_keys
from erag_ray.config.report import ReportConfig
from erag_ray.config.retrieval import RetrieveConfig
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.label_export.config import ExportConfig
from erag_ray.extras.papers.config import DualLabelsConfig, PapersConfig
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.extras.train.config import TrainConfig
from erag_ray.extras.world.config import WorldConfig

JOBS = sorted(path.stem for path in (ROOT / "jobs").glob("*.py"))
JOB_CONFIGS = {
    kind.__name__: kind
    for kind in (
        BenchmarkConfig, DualLabelsConfig, ExportConfig, GateConfig, JobConfig, PapersConfig, ReportConfig,
        RetrieveConfig, SettleConfig, TrainConfig, WorldConfig,
    )
}  # fmt: skip
# what reads a command line and YAML; everything else that is installed comes later
AT_START = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection", "yaml"}
TRAIN = ["--reader.kind", "fid", "--reader.model", "jobs/demo/reader", "--dev.queries", "[nowhere.jsonl]"]
HEAVY_WITH_INPUTS = {"ray", "torch", "transformers", "numba", "pandas", "openai", "altair"}
IMPORTED = """
import json, runpy, sys

job, attempts = sys.argv[1], json.loads(sys.argv[2])
codes = []
for attempt in attempts:
    sys.argv = [job, *attempt]
    try:
        runpy.run_path(job, run_name="__main__")
    except SystemExit as ended:
        codes.append(ended.code)
files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
packages = {name.partition(".")[0] for name, file in files.items() if "site-packages" in file}
own = [name for name in files if name.startswith("erag_ray")]
print(json.dumps({"codes": codes, "packages": sorted(packages), "own": own}))
"""


def imported(job: str, *attempts: list[str]) -> dict[str, list[str]]:
    """Exit codes of attempts to run a job, and the installed packages that they have imported together."""
    done = python("-c", IMPORTED, f"jobs/{job}.py", json.dumps(attempts))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.long
@pytest.mark.parametrize("job", JOBS)
def test_help_and_a_wrong_key_or_value_import_no_heavy_package(job: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "key.yaml").write_text("outt: a\n")
    (tmp_path / "value.yaml").write_text("out: [a]\n")
    files = [["--config", str(tmp_path / f"{name}.yaml")] for name in ("key", "value")]
    answer = imported(job, ["--help"], ["--help.all"], ["--outt", "a"], *files)
    assert answer["codes"] == [0, 0, 2, 2, 2]
    installed = {name for name in answer["packages"] if not name.startswith("_")} - {"erag_ray"}
    assert installed - {"coverage"} <= AT_START
    rooms = {name.split(".")[1] for name in answer["own"] if "." in name}
    extras = {name.split(".")[2] for name in answer["own"] if name.startswith("erag_ray.extras.")}
    assert len(extras) <= 1
    assert {name for name in answer["own"] if name.count(".") == 3 and ".extras." in name} <= {
        f"erag_ray.extras.{extra}.{file}" for extra in extras for file in ("config", "job", "dual_job")
    }
    assert rooms - {"extras"} <= {"cli", "config", "support"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("job", "options"),
    [
        ("compare", ["--queries", "[nowhere.jsonl]", "--runs", "{a: nowhere.trec}"]),
        ("compare", ["--queries", "[QUESTIONS]", "--runs", "{a: nowhere.trec}"]),
        ("compare", ["--queries", "[QUESTIONS]", "--annotators", "[eragg]"]),
        ("prepare", ["--queries", "[nowhere.jsonl]", "--runs", "{a: nowhere.trec}"]),
        *((job, []) for job in ("annotate", "end_to_end", "evaluate", "settle")),
        ("gate", ["--baseline", "nowhere"]),
        ("train", TRAIN),
        ("train", [*TRAIN, "--train.queries", "[QUESTIONS]"]),
        ("train", [*TRAIN, "--train.queries", "[QUESTIONS]", "--train.passages", "[QUESTIONS]"]),
        ("train", ["--reader.kind", "causal"]),
    ],
)
def test_wrong_inputs_are_told_before_ray_and_torch_are_imported(
    job: str, options: list[str], tmp_path: pathlib.Path
) -> None:
    folders = ["--out", str(tmp_path / "out")]
    folders += [] if job in ("gate", "train") else ["--cache_dir", str(tmp_path / "store")]
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "q1", "question": "who?", "answers": ["Ada"]}\n')
    options = [option.replace("QUESTIONS", str(questions)) for option in options]
    answer = imported(job, [*options, *folders])
    assert answer["codes"] == [2]
    assert not HEAVY_WITH_INPUTS & set(answer["packages"])


# --- keys that there are not ---


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--depht", "3"], "unknown key --depht. Did you mean --depth?"),
        (["--depht=3"], "unknown key --depht. Did you mean --depth?"),
        (["--dep", "5"], "unknown key --dep. Did you mean --depth?"),
        (["--reader.modle", "x"], "unknown key --reader.modle. Did you mean --reader.model?"),
        (["--base_url", "x"], "unknown key --base_url. Did you mean --reader.base_url?"),
        (["--qqqq", "x"], "unknown key --qqqq"),
        (["--reader.prompt.chatt", "x"], "unknown key --reader.prompt.chatt. Did you mean --reader.prompt.chat?"),
        (["--retrievers.a.kidn", "bm25"], "unknown key --retrievers.a.kidn. Did you mean --retrievers.a.kind?"),
        (["--outt", "x", "--num-queries", "3"],
         "unknown key --outt. Did you mean --out?; unknown key --num-queries. Did you mean --num_queries?"),
        (["--", "x"], "unknown key --"),
        (["--out.", "x"], "unknown key --out.: --out has no keys below it. Did you mean --out?"),
        (["--retrievers.a[b].k1", "1"], "retrievers.a[b] must have the key kind"),
        (["--reader.price_per_million", "{model: -1}"], "reader.price_per_million.model must be at least 0, got -1"),
        (["--reader.price_per_million", "{input: a}"], "reader.price_per_million.input: expected a number, got a"),
        (["--queries", ""], "queries has no value; give one, or leave the key out"),
        (["job.yaml"], "job.yaml belongs to no key; a config file is named by --config"),
    ],
)  # fmt: skip
def test_a_misspelt_option_names_the_nearest_key(
    capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert refused(capsys, *argv) == f"error: {message}"


def test_a_key_that_is_gone_has_advice(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("depth: 3\nduplicates: true\n")
    told = "equal texts of a list are not counted any more; remove the key"
    assert refused(capsys, "--config", str(file)) == f"error: {file}:2: unknown key duplicates: {told}"
    assert refused(capsys, "--duplicates", "true") == f"error: unknown key --duplicates: {told}"


def test_an_unused_key_is_named(caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("num_flips: 100\n")
    words = ["--queries", "[q.jsonl]", "--config", str(file), "--num_flips", "5"]
    assert parse(JobConfig, "", words) == JobConfig(queries=["q.jsonl"])
    assert "num_flips has no effect any more, since tests of differences are exact; remove" in caplog.text


@pytest.mark.parametrize("key", [*GONE, *UNUSED])
def test_a_key_that_is_gone_is_of_no_job(key: str) -> None:
    assert key not in {key for name in JOB_CONFIGS for key in all_keys(JOB_CONFIGS[name])}


# --- the help ---


def shown(capsys: pytest.CaptureFixture[str], name: str, option: str) -> str:
    """What a help prints."""
    with pytest.raises(SystemExit):
        parse(JOB_CONFIGS[name], "First line.\n\n    python a --command\n", [option])
    return capsys.readouterr().out


def options_in(text: str) -> list[str]:
    """The keys of a help, in their order."""
    return [key for key in re.findall(r"^  --([\w.]+)", text, re.MULTILINE) if not key.endswith("help")]


@pytest.mark.parametrize("name", JOB_CONFIGS)
def test_every_key_has_its_help_and_everyday_keys_come_first(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    every = options_in(shown(capsys, name, "--help.all"))
    assert len(every) == len(set(every))
    # those of a prompt are told with the prompt, those of a new model or another reader by --scratch.help and so on
    inside = ("reader.prompt.", "scratch.", "auxiliary_reader.")
    keys = {key for key in all_keys(JOB_CONFIGS[name]) if not key.startswith(inside)}
    groups = {key for key in keys if any(other.startswith(f"{key}.") for other in keys)}
    assert keys - groups <= set(every)
    few = options_in(shown(capsys, name, "--help"))
    everyday = [key for keys in getattr(JOB_CONFIGS[name], "EVERYDAY", {}).values() for key in keys]
    first = ["help.all", "config", "print_config"]
    assert few == every if not everyday else few == [*first, *everyday]
    assert every[: len(few)] == few


def test_the_help_of_a_comparison_is_short_and_leaves_commands_on_their_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, "JobConfig", "--help")
    assert "\n    python a --command\n" in text
    headings = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert headings == ["options", "Inputs", "Reader", "Evaluation", "Output"]
    assert len(options_in(text)) <= 20


def test_the_command_lists_all_jobs_and_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["erag-ray"])
    main()
    assert sorted(re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE)) == JOBS
    monkeypatch.setattr(sys, "argv", ["erag-ray", "compar"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "Did you mean 'compare'?" in capsys.readouterr().err

"""The core without one of its extras, and with one that cannot be imported: in a copy of the package."""

import json
import os
import pathlib
import re
import shutil
import tomllib

import pytest
from conftest import put_back
from quiet_ray import ENVIRONMENT
from scripts import python
from tiny import Tiny

import erag_ray

Copies = tuple[dict[str, pathlib.Path], str]
ROOT = pathlib.Path(erag_ray.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
POINTS: dict[str, dict[str, str]] = PROJECT["entry-points"]


def of_extra(value: str) -> str:
    return value.partition(":")[0].split(".")[2]


EXTRAS = sorted({of_extra(value) for group in POINTS.values() for value in group.values()})
# jobs of extras, and keys of a comparison that ask for one
JOBS_OF = {
    "broken": ["gate"],
    "gate": ["gate"],
    "label_export": ["export"],
    "papers": ["papers", "dual_labels"],
    "readers": ["readers"],
    "sequential_test": ["settle"],
    "train": ["train"],
    "world": ["world"],
}
KEYS_OF = {
    "broken": ["--credits", "[leave_one_out]"],
    "auxiliary": ["--auxiliary", "provenance", "--reader_queries", "30"],
    "credit": ["--credits", "[leave_one_out]"],
    "track": ["--track", "mlflow"],
}
WITHOUT_EACH = """
import contextlib, importlib, io, json, os, pkgutil, runpy, sys, traceback

def import_all():
    package = importlib.import_module("erag_ray")
    for module in pkgutil.walk_packages(package.__path__, "erag_ray."):
        importlib.import_module(module.name)
    return package.__file__


def run(job, *words):
    sys.argv = [job, *words]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            runpy.run_path(f"jobs/{job}.py", run_name="__main__")
        except SystemExit as end:
            return end.code, said.getvalue()
    return 0, said.getvalue()


def check(folder, keys):
    os.chdir(folder)
    sys.path.insert(0, folder)
    file = importlib.import_module("erag_ray").__file__ if "broken" in folder else import_all()
    ended = {name[:-3]: run(name[:-3], "--help") for name in sorted(os.listdir("jobs")) if name.endswith(".py")}
    report = *run("report", "--out", OUT), open(f"{OUT}/report.md").read()
    asking = run("evaluate", "--out", "other", *keys) if keys else None
    return {"file": file, "jobs": ended, "report": report, "asking": asking}


# what the package imports is imported once, for all copies
import_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "erag_ray"]:
    del sys.modules[name]
OUT, copies = sys.argv[1], json.loads(sys.argv[2])
for folder, keys in copies.items():
    if not (child := os.fork()):
        try:
            ended = check(folder, keys)
        except BaseException:
            ended = {"error": traceback.format_exc()}
        with open(f"{folder}/ended.json", "w") as result:
            json.dump(ended, result)
        os._exit(0)
    os.waitpid(child, 0)
"""


def copy_without(extra: str, folder: pathlib.Path) -> None:
    """Copy the package and its jobs, installed as far as its entry points go, without an extra's files and lines."""
    for name in ("erag_ray", "jobs"):
        shutil.copytree(ROOT / name, folder / name)
    place = folder / "erag_ray" / "extras" / extra
    if extra == "broken":
        for name in ("credit", "gate"):
            (place.parent / name / "__init__.py").write_text("import no_such_package\n")
    else:
        shutil.rmtree(place) if place.is_dir() else place.with_suffix(".py").unlink()
    # where `importlib.metadata` finds them first
    metadata = folder / "erag_ray-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: erag-ray\nVersion: 0\n")
    lines = []
    for group, points in POINTS.items():
        others = [f"{name} = {value}" for name, value in points.items() if of_extra(value) != extra]
        lines += [f"[{group}]", *others]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def copies(finished_tiny: tuple[Tiny, pathlib.Path], tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """A copy of the package without each extra, with what its jobs ended with; and a finished job's report."""
    out = put_back(finished_tiny).config.out
    report = pathlib.Path(out, "report.md").read_text()
    folders = {extra: tmp_path_factory.mktemp(extra) for extra in (*EXTRAS, "broken")}
    for extra, folder in folders.items():
        copy_without(extra, folder)
    keys = {str(folder): KEYS_OF.get(extra) for extra, folder in folders.items()}
    done = python("-c", WITHOUT_EACH, out, json.dumps(keys), env={**os.environ, **ENVIRONMENT})
    assert done.returncode == 0, done.stderr
    return folders, report


@pytest.mark.long
@pytest.mark.parametrize("extra", [*EXTRAS, "broken"])
def test_everything_else_works_without_an_extra(extra: str, copies: Copies) -> None:
    folders, report = copies
    ended = json.loads((folders[extra] / "ended.json").read_text())
    assert "error" not in ended, ended["error"]
    assert ended["file"].startswith(str(folders[extra]))
    code, said, text = ended["report"]
    assert (code, text) == (0, report)
    is_broken = extra == "broken"
    for fault in ("left out: extension 'credits' cannot be loaded: ", "No module named 'no_such_package'"):
        assert (fault in said) == is_broken
    missing = "job '{}' cannot be loaded: " if is_broken else "^unknown job '{}'; known: annotate, "
    assert ended["jobs"].keys() == {path.stem for path in (ROOT / "jobs").glob("*.py")}
    for job, (code, said) in ended["jobs"].items():
        is_missing = job in JOBS_OF.get(extra, [])
        assert code == (2 if is_missing else 0), said
        assert not is_missing or re.search(missing.format(job), said)
    if extra in KEYS_OF:
        code, said = ended["asking"]
        assert code == 2
        key = KEYS_OF[extra][0][2:]
        belongs = f"{key}: belongs to an extra of erag_ray that is not installed"
        assert (f"{key}: extension {key!r} cannot be loaded: " if is_broken else belongs) in said

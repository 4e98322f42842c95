"""The core without one of its extras, and with one that cannot be imported: in a copy of the package."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tomllib

import pytest
from quiet_ray import ENVIRONMENT
from scripts import python
from tiny import Tiny

import erag_ray

PACKAGE = pathlib.Path(erag_ray.__file__).parent
ROOT = PACKAGE.parent
POINTS: dict[str, dict[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "entry-points"
]
EXTRAS = sorted(
    {value.split(".")[2].partition(":")[0] for group in POINTS.values() for value in group.values()}
)
# jobs of extras, and keys of a comparison that ask for one
JOBS_OF = {
    "gate": ["gate"],
    "label_export": ["export"],
    "papers": ["papers", "dual_labels"],
    "readers": ["readers"],
    "sequential_test": ["settle"],
    "train": ["train"],
    "world": ["world"],
}
KEYS_OF = {
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


def check(folder, out, asked):
    os.chdir(folder)
    sys.path.insert(0, folder)
    file = import_all()
    ended = {name[:-3]: run(name[:-3], "--help") for name in sorted(os.listdir("jobs")) if name.endswith(".py")}
    report = run("report", "--out", out)
    with open(f"{out}/report.md") as text:
        report = [*report, text.read()]
    asking = run("evaluate", "--out", f"{folder}/other", *asked) if asked else None
    with open("ended.json", "w") as result:
        json.dump({"file": file, "jobs": ended, "report": report, "asking": asking}, result)


# the packages that the core and the extras need are imported once, for all copies
import_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "erag_ray"]:
    del sys.modules[name]
out, copies = sys.argv[1], json.loads(sys.argv[2])
for folder, asked in copies.items():
    if not (child := os.fork()):
        try:
            check(folder, out, asked)
        except BaseException:
            with open(f"{folder}/ended.json", "w") as result:
                json.dump({"error": traceback.format_exc()}, result)
        os._exit(0)
    os.waitpid(child, 0)
"""


class Copy:
    """A copy of the package with the jobs, installed as far as its entry points go."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("erag_ray", "jobs"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        self.groups = dict(POINTS)
        self.install()

    def install(self) -> None:
        """Write the entry points where `importlib.metadata` finds them first."""
        metadata = self.folder / "erag_ray-0.dist-info"
        metadata.mkdir(exist_ok=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: erag-ray\nVersion: 0\n")
        lines = []
        for group, points in self.groups.items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
        (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def delete(self, extra: str) -> None:
        """Delete an extra's files and its lines in ``pyproject.toml``."""
        place = self.folder / "erag_ray" / "extras" / extra
        shutil.rmtree(place) if place.is_dir() else place.with_suffix(".py").unlink()
        for group, points in self.groups.items():
            kept = {
                name: value
                for name, value in points.items()
                if value.partition(":")[0].split(".")[2] != extra
            }
            assert len(kept) < len(points) or group == "erag_ray.jobs" or extra not in KEYS_OF
            self.groups[group] = kept
        self.install()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(self.folder)}
        return python(*command, cwd=self.folder, env=environment)


@pytest.fixture(scope="module")
def copies(
    finished_tiny: tuple[Tiny, pathlib.Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, pathlib.Path], str]:
    """A copy of the package without each extra, with what its jobs ended with; and a finished job's report."""
    tiny, _ = finished_tiny
    report = pathlib.Path(tiny.config.out, "report.md").read_text()
    folders = {extra: tmp_path_factory.mktemp(extra) for extra in EXTRAS}
    for extra, folder in folders.items():
        Copy(folder).delete(extra)
    asked = {str(folder): KEYS_OF.get(extra) for extra, folder in folders.items()}
    done = python("-c", WITHOUT_EACH, tiny.config.out, json.dumps(asked), env={**os.environ, **ENVIRONMENT})
    assert done.returncode == 0, done.stderr
    return folders, report


@pytest.mark.long
@pytest.mark.parametrize("extra", EXTRAS)
def test_everything_else_works_without_an_extra(
    extra: str, copies: tuple[dict[str, pathlib.Path], str]
) -> None:
    folders, report = copies
    ended = json.loads((folders[extra] / "ended.json").read_text())
    assert "error" not in ended, ended["error"]
    assert ended["file"].startswith(str(folders[extra]))
    assert ended["report"][0] == 0
    assert ended["report"][2] == report
    assert ended["jobs"].keys() == {path.stem for path in (ROOT / "jobs").glob("*.py")}
    for job, (code, said) in ended["jobs"].items():
        if job in JOBS_OF.get(extra, []):
            assert code == 2
            assert said.startswith(f"unknown job {job!r}; known: annotate, ")
        else:
            assert code == 0, said
    if extra in KEYS_OF:
        code, said = ended["asking"]
        assert code == 2
        assert f"{KEYS_OF[extra][0][2:]}: belongs to an extra of erag_ray that is not installed" in said


@pytest.mark.long
def test_an_extra_that_cannot_be_imported_is_named_and_ends_only_what_needs_it(
    compared: Tiny, tmp_path: pathlib.Path
) -> None:
    report = pathlib.Path(compared.config.out, "report.md").read_text()
    copy = Copy(tmp_path / "copy")
    for extra in ("credit", "gate"):
        (copy.folder / "erag_ray" / "extras" / extra / "__init__.py").write_text("import no_such_package\n")
    done = copy.run("jobs/report.py", "--out", compared.config.out)
    assert done.returncode == 0, done.stderr
    assert "left out: extension 'credits' cannot be loaded: " in done.stderr
    assert "No module named 'no_such_package'" in done.stderr
    assert pathlib.Path(compared.config.out, "report.md").read_text() == report
    done = copy.run("jobs/gate.py", "--help")
    assert done.returncode == 2
    assert "job 'gate' cannot be loaded: " in done.stderr
    done = copy.run("jobs/evaluate.py", "--out", str(tmp_path / "other"), *KEYS_OF["credit"])
    assert done.returncode == 2
    assert "credits: extension 'credits' cannot be loaded: " in done.stderr

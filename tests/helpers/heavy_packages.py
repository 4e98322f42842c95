"""Packages that take long to import, and programs that begin without some of them."""

from collections.abc import Iterable

from erag_ray.support.registry import OF_MODELS

HEAVY = {
    "torch": {"models", "retrieve", "train", "inference"},
    "transformers": {"models", "retrieve", "train", "inference"},
    "sentence_transformers": {"retrieve"},
    "faiss": {"retrieve"},
    "ray": {"inference", "train"},
    "bm25s": {"retrieve"},
    "Stemmer": {"retrieve"},
    "vllm": {"models"},
    "altair": {"report"},
    "vl_convert": {"papers", "report"},
}
"""Package -> the rooms that may import it."""
LIGHT_INSTALL = f"""
import importlib.machinery
find_spec = importlib.machinery.PathFinder.find_spec
def find(name, path=None, target=None):
    return None if name.partition(".")[0] in {OF_MODELS!r} else find_spec(name, path, target)
importlib.machinery.PathFinder.find_spec = find
"""
"""The package as installed without the extras cpu and gpu."""


def refusing(packages: Iterable[str]) -> str:
    """A beginning of a program, after which none of these packages can be imported."""
    return f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted(packages)!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Refuse())
"""


def job_without(packages: Iterable[str], job: str) -> str:
    """A program that runs a job where none of these packages can be imported; its words are the job's."""
    return f"""{refusing(packages)}
import runpy

sys.argv[0] = "jobs/{job}.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""

"""Scripts outside the package as modules, and Python in processes of its own."""

import importlib.util
import pathlib
import subprocess
import sys
from types import ModuleType
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]


def import_script(path: str) -> ModuleType:
    """Import a script by its path in the repository, anew each time."""
    name = pathlib.Path(path).stem
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # a dataclass looks its module up
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def python(*words: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """A process of Python that has ended: how, and what it printed. It runs in the root unless ``settings`` differ."""
    settings = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 200, **settings}
    return subprocess.run([sys.executable, *map(str, words)], **settings)

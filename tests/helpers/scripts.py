"""Scripts outside the package as modules."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from types import ModuleType

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

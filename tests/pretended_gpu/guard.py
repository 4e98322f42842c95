"""The device guard without which torch's build for CPUs takes no tensor that says it is on a GPU."""

import ctypes
import pathlib
import shutil
import subprocess
from functools import cache

import torch

SOURCE = pathlib.Path(__file__).with_name("guard.cpp")


def compiler() -> str | None:
    """The C++ compiler of this machine."""
    return shutil.which("g++") or shutil.which("clang++")


@cache
def load_guard(folder: pathlib.Path) -> None:
    """Compile `guard.cpp` into a folder and load it. It stays loaded, and does nothing.

    Not where there is a GPU: it stands in place of the guard of a CUDA build.

    Args:
        folder: for the library.
    """
    library, torch_folder = folder / "guard.so", pathlib.Path(torch.__file__).parent
    paths = [f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}"]
    command = [str(compiler()), "-shared", "-fPIC", "-std=c++20", str(SOURCE), *paths, "-lc10"]
    subprocess.run([*command, "-o", str(library)], check=True)
    ctypes.CDLL(str(library))

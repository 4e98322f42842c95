"""NumPy arrays of an index: one file each, written atomically, and memory-mapped if local."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.fs as pafs

from erag_ray.store.folder import Folder
from erag_ray.support.errors import InputError


def write_array(array: npt.NDArray[Any], folder: Folder, *names: str) -> None:
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    folder.write_bytes(sink.getvalue(), *names)


def open_array(folder: Folder, *names: str) -> npt.NDArray[Any]:
    """Open an array: memory-mapped from a local file, read completely from an object store.

    Raises:
        InputError: the file is not an array, or damaged.
    """
    is_local = isinstance(folder.filesystem, pafs.LocalFileSystem)
    try:
        array: npt.NDArray[Any] = (
            np.load(folder.at(*names), mmap_mode="r", allow_pickle=False)
            if is_local
            else np.load(io.BytesIO(folder.read_bytes(*names)), allow_pickle=False)
        )
    except (ValueError, EOFError, OSError) as error:
        path = folder.at(*names)
        raise InputError([f"{path}: damaged ({error}). Delete the index's folder to rebuild it"]) from error
    return array

"""NumPy arrays of an index: one file each, which appears whole and is mapped from disk where it is local."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.fs as pafs

from erag_ray.errors import InputError
from erag_ray.store.folder import Folder


def write_array(array: npt.NDArray[Any], folder: Folder, *names: str) -> None:
    """Write an array as NumPy's own file."""
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    folder.write_bytes(sink.getvalue(), *names)


def open_array(folder: Folder, *names: str) -> npt.NDArray[Any]:
    """An array: of a local file its pages are read as they are looked at; from an object store it is read whole.

    Raises:
        InputError: the file is no array or not whole.
    """
    is_local = isinstance(folder.filesystem, pafs.LocalFileSystem)
    try:
        found: npt.NDArray[Any] = (
            np.load(folder.at(*names), mmap_mode="r", allow_pickle=False)
            if is_local
            else np.load(io.BytesIO(folder.read_bytes(*names)), allow_pickle=False)
        )
    except (ValueError, EOFError, OSError) as error:
        place = folder.at(*names)
        raise InputError(
            [f"{place}: damaged ({error}); delete the index's folder to have it made again"]
        ) from error
    return found

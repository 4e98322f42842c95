"""Datasets of the library `datasets` by name (``hf:NAME:SPLIT``): their rows as plain values, and their stamps.

Names: ``hf:NAME:SPLIT`` and ``hf:NAME:CONFIG:SPLIT`` of the Hugging Face Hub, and ``hf:/folder`` or
``hf:/folder:SPLIT`` of a folder that ``save_to_disk`` wrote or ``load_dataset`` reads. A folder starts with ``/``,
``./``, ``../`` or ``~``.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

PREFIX = "hf:"
FORMS = "hf:NAME:SPLIT, hf:NAME:CONFIG:SPLIT, hf:/folder or hf:/folder:SPLIT"
INSTALL = "pip install 'erag-ray[huggingface]'"
ROWS_AT_A_TIME = 1000
SAVED = ("state.json", "dataset_dict.json")
"""Files of ``save_to_disk``: either is in each of its folders."""


def is_dataset(path: str) -> bool:
    return path.startswith(PREFIX)


def dataset_name(path: str) -> str:
    """Return the last word of the name of a dataset, without owner, configuration and split."""
    name, _, _ = _named(path)
    return os.path.basename(name.rstrip("/"))


def dataset_rows(path: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a dataset as values that JSON has; times, decimals and bytes are texts.

    Raises:
        ValueError: the dataset cannot be loaded, with the reason in one line.
    """
    for table in _loaded(path).with_format("arrow").iter(ROWS_AT_A_TIME):
        yield from map(_plain, table.to_pylist())


def dataset_stamp(path: str) -> str:
    """Return the number of rows and a digest of the rows of a dataset; raises as `dataset_rows`."""
    digest, num_rows = hashlib.sha256(), 0
    for row in dataset_rows(path):
        digest.update(json.dumps(row, sort_keys=True).encode())
        num_rows += 1
    return f"{num_rows} rows, {digest.hexdigest()[:32]}"


def _named(path: str) -> tuple[str, str | None, str | None]:
    """Return name or folder, configuration and split."""
    name = path.removeprefix(PREFIX)
    if name.startswith(("/", "./", "../", "~")):
        name = os.path.expanduser(name)
        folder, _, split = (name, "", "") if os.path.isdir(name) else name.partition(":")
        return folder, None, split or None
    parts = name.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise ValueError(f"not of the form {FORMS}")
    return parts[0], parts[1] if len(parts) == 3 else None, parts[-1]


def _loaded(path: str) -> Any:
    """Return the `datasets.Dataset` that a path names."""
    name, configuration, split = _named(path)
    try:
        # seconds of imports, for an optional library
        import datasets
    except ImportError as error:
        raise ValueError(f"needs the library datasets: {INSTALL} ({error})") from error
    try:
        if any(os.path.isfile(os.path.join(name, file)) for file in SAVED):
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, configuration)
    except Exception as error:
        # the library and the formats behind it raise errors of many classes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot be loaded: {reason}") from error
    if not hasattr(loaded, "keys"):
        if split is not None:
            raise ValueError(f"has no splits. Leave :{split} out")
        return loaded
    names = list(loaded)
    if split is None and len(names) == 1:
        return loaded[names[0]]
    if split is None or split not in names:
        wrong = "names no split" if split is None else f"has no split {split}"
        raise ValueError(f"{wrong}. Add one of: {', '.join(f':{name}' for name in names)}")
    return loaded[split]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: Arrow maps and tuples are lists, what JSON lacks is a text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)

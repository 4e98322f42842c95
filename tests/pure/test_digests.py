"""Digests of large files: hashed once on a machine, again after any change."""

import os
import pathlib
import time
from collections.abc import Callable

import pytest

from erag_ray.store import digests
from erag_ray.store.digests import CACHE, cached_digest
from erag_ray.store.fingerprints import file_digest


@pytest.fixture
def hashed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were hashed; what counts as large and as settled is small."""
    names: list[str] = []

    def counted(path: pathlib.Path) -> str:
        names.append(path.name)
        return file_digest(path)

    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "LARGE", 10)
    monkeypatch.setattr(digests, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(digests, "file_digest", counted)
    return names


@pytest.fixture
def weights(tmp_path: pathlib.Path) -> pathlib.Path:
    place = tmp_path / "model.safetensors"
    place.write_bytes(b"0123456789")
    return place


def test_a_file_is_hashed_once(hashed: list[str], weights: pathlib.Path) -> None:
    assert {cached_digest(weights) for _ in range(3)} == {file_digest(weights)}
    assert len(hashed) == 1
    # a link to it is the same file
    link = weights.with_name("link")
    link.symlink_to(weights)
    assert cached_digest(link) == file_digest(weights)
    assert len(hashed) == 1


def rewrite(place: pathlib.Path) -> None:
    """Change the content, and set size and time of modification back."""
    before = place.stat()
    place.write_bytes(b"9876543210")
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(place: pathlib.Path) -> None:
    other = place.with_name("other")
    other.write_bytes(b"abcdefghij")
    os.replace(other, place)


@pytest.mark.parametrize("change", [rewrite, replace, lambda place: place.write_bytes(b"longer than before")])
def test_a_change_of_any_kind_is_noticed(
    hashed: list[str], weights: pathlib.Path, change: Callable[[pathlib.Path], object]
) -> None:
    first = cached_digest(weights)
    time.sleep(0.02)
    change(weights)
    assert cached_digest(weights) == file_digest(weights) != first


@pytest.mark.parametrize(("limit", "value"), [("SETTLED_SECONDS", 60.0), ("LARGE", 11)])
def test_a_file_that_may_still_change_or_is_small_is_hashed_each_time(
    hashed: list[str],
    weights: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: float,
) -> None:
    monkeypatch.setattr(digests, limit, value)
    assert cached_digest(weights) == cached_digest(weights)
    assert len(hashed) == 2
    assert not weights.with_name("cache").exists()


@pytest.mark.parametrize("note", ["", "{}", "[1]", '{"stamp": 3, "sha256": "x"}'])
def test_a_damaged_note_is_made_again(
    hashed: list[str], weights: pathlib.Path, tmp_path: pathlib.Path, note: str
) -> None:
    expected = cached_digest(weights)
    (file,) = (tmp_path / "cache" / "digests").glob("*.json")
    file.write_text(note)
    assert cached_digest(weights) == expected
    assert cached_digest(weights) == expected
    assert len(hashed) == 2


def test_without_a_folder_to_remember_in_each_hashes(
    hashed: list[str], weights: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE, str(tmp_path / "file"))
    assert cached_digest(weights) == cached_digest(weights) == file_digest(weights)
    assert len(hashed) == 2

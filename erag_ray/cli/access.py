"""Object stores that a job names: looked at before anything else, so that one out of reach costs one short wait."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from erag_ray.config.keys.values import paths_of
from erag_ray.store.folder import Folder
from erag_ray.support.errors import InputError
from erag_ray.support.uris import is_uri

ANSWER_SECONDS = 30.0
SETTINGS = {
    "s3": "AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


def check_access(config: Any) -> None:
    """Check that every bucket that the config names answers, by the first of its paths; all are checked at once.

    Raises:
        InputError: some do not, or deny access.
    """
    faults: dict[str, str | None] = dict.fromkeys(
        _first_of_each(path for _, path in paths_of(config) if is_uri(path))
    )
    asking = [threading.Thread(target=_ask, args=(uri, faults), daemon=True) for uri in faults]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(ANSWER_SECONDS)
    for uri, thread in zip(faults, asking, strict=True):
        if thread.is_alive():
            faults[uri] = f"no answer within {ANSWER_SECONDS:.0f} seconds"
    problems = [f"{uri}: {fault}{_hint(uri)}" for uri, fault in faults.items() if fault]
    if problems:
        raise InputError(problems)


def _first_of_each(uris: Iterable[str]) -> list[str]:
    firsts: dict[str, str] = {}
    for uri in uris:
        firsts.setdefault("/".join(uri.split("/")[:3]), uri)
    return list(firsts.values())


def _ask(uri: str, faults: dict[str, str | None]) -> None:
    try:
        Folder(uri).exists()
    except (OSError, ValueError, pa.ArrowException) as error:
        faults[uri] = f"cannot be reached: {error}"


def _hint(uri: str) -> str:
    names = SETTINGS.get(uri.partition("://")[0])
    return f" (the environment says where it is and who asks: {names})" if names else ""

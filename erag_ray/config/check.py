"""Values out of range are refused where a config is made."""

from __future__ import annotations


def require(condition: bool, message: str) -> None:
    """Raise ValueError with the message if the condition does not hold."""
    if not condition:
        raise ValueError(message)

"""Keys of former versions that are gone."""

from __future__ import annotations

GONE = {
    "duplicates": "equal texts of a list are not counted any more; remove the key",
}
"""Key, with dots -> what to do instead, for the message about it."""

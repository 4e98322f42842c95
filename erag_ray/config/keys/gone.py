"""Keys of former versions that are gone."""

from __future__ import annotations

GONE = {
    "calibrate": "run the job on a sample (num_queries: 20), then with dry_run: true, which says what the rest takes",
    "duplicates": "equal texts of a list are not counted any more; remove the key",
}
"""Key, with dots -> what to do instead, for the message about it."""

"""Pages of KILT's knowledge source."""

import json

from erag_ray.data.passages.splitters import Page


def page_line(page_id: object, title: object, text: object) -> str:
    return (
        json.dumps({"wikipedia_id": page_id, "wikipedia_title": title, "text": text, "categories": ""}) + "\n"
    )


def page_of(*paragraphs: str) -> Page:
    return Page(page_id="7", title="T", paragraphs=paragraphs)


def words(first: int, last: int) -> str:
    """The words w1 ... up to the last one named."""
    return " ".join(f"w{number}" for number in range(first, last + 1))

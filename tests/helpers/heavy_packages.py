"""Packages that take long to import, and the rooms that may import them."""

from __future__ import annotations

HEAVY = {
    "torch": {"models", "retrieve", "train", "inference"},
    "transformers": {"models", "retrieve", "train", "inference"},
    "sentence_transformers": {"retrieve"},
    "faiss": {"retrieve"},
    "ray": {"inference", "train"},
    "bm25s": {"retrieve"},
    "Stemmer": {"retrieve"},
    "vllm": {"models"},
    "altair": {"report"},
    "vl_convert": {"report"},
}

"""Packages that take long to import, and the rooms that may import them."""

from __future__ import annotations

HEAVY = {
    "torch": {"models", "retrieve", "train", "cluster", "inference", "benchmark"},
    "transformers": {"models", "retrieve", "train", "inference", "benchmark"},
    "sentence_transformers": {"retrieve", "benchmark"},
    "faiss": {"retrieve", "benchmark"},
    "ray": {"cluster", "inference", "train"},
    "bm25s": {"retrieve", "benchmark"},
    "Stemmer": {"retrieve"},
    "vllm": {"models"},
    "altair": {"report"},
    "vl_convert": {"report"},
}

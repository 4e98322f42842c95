"""Decoder-only models in transformers, with a prefix cache of keys and values."""

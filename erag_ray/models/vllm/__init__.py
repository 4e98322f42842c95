"""Decoder-only models in vLLM's engine, which runs inside the actor."""

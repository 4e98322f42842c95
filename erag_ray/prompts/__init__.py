"""Requests: kinds of them, and the prompts that they become."""

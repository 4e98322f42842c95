"""Extras are built on the core: none imports another, and the core imports none.

The core finds what they add through the entry points in ``pyproject.toml``. To remove an extra, delete its folder and
its lines there. A file that no entry point names is shared by several extras.
"""

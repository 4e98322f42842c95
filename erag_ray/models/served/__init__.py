"""Models behind OpenAI-compatible servers.

`model` makes requests and responses, `client` sends them and tells errors apart, `limits` bounds how many are under
way, `handshake` finds out what a server can do, `loop` runs all that beside code without an event loop.
"""

from erag_ray.models.served.model import ServedModel

__all__ = ["ServedModel"]

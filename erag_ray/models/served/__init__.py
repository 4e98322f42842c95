"""Models behind OpenAI-compatible servers.

`model` renders requests and parses responses, `client` sends requests and classifies errors, `limits` bounds the
number in flight, `handshake` detects what a server supports, `loop` runs coroutines from synchronous code.
"""

"""Models behind OpenAI-compatible servers.

`model` renders requests and runs them, `client` sends requests and classifies errors (`bounded`: of a limited length),
`answers` parses what comes back, `limits` bounds the number in flight, `handshake` detects what a server supports.
"""

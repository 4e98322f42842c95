"""Build a report of a finished job and render it: console, Markdown and an HTML page.

`load` reads a finished job's folder into `Results`, `build` has every analysis show its part of them, and `console`,
`markdown` and `page` render these. Only loading and rendering do I/O.
"""

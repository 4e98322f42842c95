"""Build a report of a finished job and render it: console, Markdown and an HTML page.

`load` reads a finished job's folder into `Results`, `build_report` has every analysis show its part of them, and
`console`, `markdown` and `page` render these. Only loading and rendering do I/O.
"""

from erag_ray.report.build import build_report, views_of
from erag_ray.report.charts import javascript_bundle, svg, vega
from erag_ray.report.console import open_console, print_report, show
from erag_ray.report.leaderboard import leaderboard
from erag_ray.report.load import load
from erag_ray.report.markdown import markdown, parts_as_markdown, picture_name
from erag_ray.report.page.write import Charts, PageOptions, write_page
from erag_ray.report.stage import report

__all__ = [
    "Charts",
    "PageOptions",
    "build_report",
    "javascript_bundle",
    "leaderboard",
    "load",
    "markdown",
    "open_console",
    "parts_as_markdown",
    "picture_name",
    "print_report",
    "report",
    "show",
    "svg",
    "vega",
    "views_of",
    "write_page",
]

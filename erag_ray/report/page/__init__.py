"""A report and its questions -> ``report/index.html``, a page that needs no server and no network. Reads no tables."""

from erag_ray.report.page.write import Charts, PageOptions, write_page

__all__ = ["Charts", "PageOptions", "write_page"]

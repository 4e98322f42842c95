"""Write a report and its questions as ``report/index.html``, a page that needs no server and no network."""

from erag_ray.report.page.write import Charts, PageOptions, write_page

__all__ = ["Charts", "PageOptions", "write_page"]

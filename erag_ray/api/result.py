"""The results of a finished comparison as frames, text and a page."""

import functools
import html
import io

import polars as pl
import rich.console

from erag_ray.analyses.contract import Results
from erag_ray.analyses.every import all_tables
from erag_ray.report.build import build_report
from erag_ray.report.console import print_report
from erag_ray.report.load import load
from erag_ray.store.schemas import OF_STAGES
from erag_ray.store.tables import TableStore

WIDTH = 100
PAGE = ("report", "index.html")


def text_console(text: io.StringIO) -> rich.console.Console:
    """Return a console that writes plain text, in a notebook too."""
    # Jupyter forces colors
    return rich.console.Console(file=text, width=WIDTH, force_jupyter=False, force_terminal=False)


class Result:
    """A finished comparison, by its folder.

    Every sealed table is an attribute with a Polars frame: ``means`` (measures and end-to-end scores of each run, with
    intervals), ``labels`` (the usefulness of each document, by annotator), ``utility``, ``cells``, ``per_query``,
    ``comparisons``, ``correlations``, ... (``dir(result)`` lists them; columns: erag_ray/README.md).

    Args:
        out: folder or URI of a finished comparison, of Python or of erag-ray compare.

    Raises:
        InputError: there is none, or its tables were changed.
    """

    def __init__(self, out: str) -> None:
        self.out = out
        self._results: Results = load(out)

    def __getattr__(self, name: str) -> pl.DataFrame:
        if name.startswith("_") or name not in self._tables:
            has = "" if name.startswith("_") else f"; it has {', '.join(self._tables)}"
            raise AttributeError(f"{self.out} has no sealed table {name!r}{has}")
        if name in self._results.tables:
            return self._results.tables[name]
        return TableStore(self.out).read(all_tables()[name])

    @functools.cached_property
    def _tables(self) -> list[str]:
        store = TableStore(self.out)
        schemas = all_tables().items()
        return [name for name, schema in schemas if store.is_sealed(schema) or schema in OF_STAGES]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._tables})

    @functools.cached_property
    def verdict(self) -> str:
        """The best run for the reader, how sure that is, and what it cost, in at most 40 lines."""
        text = io.StringIO()
        print_report(build_report(self._results), text_console(text))
        return text.getvalue().rstrip()

    def report(self) -> str:
        """Return the path of the page: charts, tables and every question."""
        return "/".join([self.out.rstrip("/"), *PAGE])

    def __repr__(self) -> str:
        return f"Result({self.out!r})\n{self.verdict}"

    def _repr_html_(self) -> str:
        page = html.escape(self.report())
        return f'<pre>{html.escape(self.verdict)}</pre><a href="{page}" target="_blank">{page}</a>'

"""Render figures as Vega-Lite specs for the page, by Altair, which is imported lazily: it takes a second.

Specs contain their data and no URL. Their background is transparent and they set no color of text or axes: the page
sets these with a Vega config of its theme.

In a page call ``vegaEmbed`` with ``ast: true``: Vega then interprets its expressions instead of compiling them, which
works under a Content-Security-Policy without ``unsafe-eval``.
"""

import contextlib
import functools
import importlib.metadata
from typing import Any

from erag_ray.analyses.parts.model import Figure
from erag_ray.store.digests import cache_folder, write_cached

VEGA_LITE = "6.4"
"""The version that Altair writes; vl-convert supports several."""


def vega(figure: Figure, width: int | None = None) -> dict[str, Any]:
    """Return the Vega-Lite spec of a figure, with inline data.

    ``width`` of the plot in pixels; None: the width of the surrounding element. Figures of several panels ignore it.
    """
    from altair.utils.schemapi import debug_mode

    from erag_ray.report.vega_lite import drawn_rows, panels_of, several_panels, single_panel

    rows = drawn_rows(figure)
    panels = panels_of(figure, rows)
    # validating every part takes half of the report's time: a test validates the whole specs
    with debug_mode(False):
        if len(panels) > 1:
            chart = several_panels(figure, rows, panels)
        else:
            chart = single_panel(figure, rows, "container" if width is None else width, *panels)
        spec: dict[str, Any] = chart.to_dict(validate=False)
    # the URL of the schema, and the defaults of Altair's theme
    for key in ("$schema", "config"):
        spec.pop(key, None)
    return {**spec, "background": "transparent", "description": f"{figure.title}. {figure.caption}"}


@functools.cache
def javascript_bundle() -> str:
    """Return the JavaScript of Vega, Vega-Lite and vega-embed (.9 MB), for all charts of a page.

    It defines ``window.vegaEmbed`` and is safe inside a ``<script>`` element. Bundling takes seconds, so it is kept in
    this machine's cache folder, where that can be written.
    """
    name = f"charts-{importlib.metadata.version('vl-convert-python')}-{VEGA_LITE}.js"
    # RuntimeError: a user without a home
    with contextlib.suppress(OSError, RuntimeError):
        return (cache_folder() / name).read_text(encoding="utf-8")
    import vl_convert

    # the type stub lacks the default
    bundle: str = vl_convert.javascript_bundle(snippet=None, vl_version=VEGA_LITE)  # type: ignore[arg-type]
    bundle = bundle.replace("</script", "<\\/script")
    with contextlib.suppress(OSError, RuntimeError):
        write_cached(cache_folder() / name, bundle)
    return bundle

"""Render figures: Vega-Lite specs for the page (Altair) and SVG for Markdown (vl-convert, without a browser).

Both packages are imported lazily, since the import takes a second. Specs contain their data and no URL. Their
background is transparent and they set no color of text or axes: the page sets these with a Vega config of its theme,
an SVG with `PICTURE_CONFIG`.

In a page call ``vegaEmbed`` with ``ast: true``: Vega then interprets its expressions instead of compiling them, which
works under a Content-Security-Policy without ``unsafe-eval``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from erag_ray.analyses.parts.model import Figure
from erag_ray.store.digests import cache_folder, write_cached

WIDTH = 560
"""Width of an SVG, in pixels."""
VEGA_LITE = "6.4"
"""The version that Altair writes; vl-convert supports several."""
GREY, LIGHT_GREY = "#7a7f85", "#9aa0a6"
"""Colors of text, and of axes and grid: legible on white and on black."""
TEXTS = {"labelColor": GREY, "titleColor": GREY}
LINES = {"domainColor": LIGHT_GREY, "tickColor": LIGHT_GREY, "gridColor": LIGHT_GREY}
PICTURE_CONFIG: Mapping[str, object] = {
    "background": "transparent",
    "axis": {**TEXTS, **LINES, "gridOpacity": 0.4, "titleFontWeight": "normal"},
    "header": TEXTS,
    "legend": TEXTS,
    "title": {"color": GREY},
    "text": {"color": GREY},
    "view": {"stroke": None},
}
"""Vega config of an SVG, for light and dark backgrounds."""


def vega(figure: Figure, width: int | None = None, *, is_picture: bool = False) -> dict[str, Any]:
    """Return the Vega-Lite spec of a figure, with inline data.

    Args:
        figure: the figure.
        width: of the plot in pixels; None: the width of the surrounding element. Figures of several panels ignore it.
        is_picture: leave out tooltips, accessibility labels and invisible marks.
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
    described = {**spec, "background": "transparent", "description": f"{figure.title}. {figure.caption}"}
    return _static(described) if is_picture else described


def _static(spec: dict[str, Any]) -> dict[str, Any]:
    """Remove tooltips, accessibility labels and invisible marks from a spec."""
    inner = spec.get("spec", spec)
    layers = [layer for layer in inner["layer"] if layer["mark"].get("opacity") != 0]
    for layer in layers:
        layer["mark"]["aria"] = False
        layer["encoding"].pop("tooltip", None)
    inner["layer"] = layers
    return spec


def svg(figure: Figure) -> str:
    """Return a figure as SVG, legible on light and on dark backgrounds."""
    import vl_convert

    spec = {**vega(figure, WIDTH, is_picture=True), "config": PICTURE_CONFIG}
    picture: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    return picture


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
    bundle = _bundled()
    with contextlib.suppress(OSError, RuntimeError):
        write_cached(cache_folder() / name, bundle)
    return bundle


def _bundled() -> str:
    import vl_convert

    # the type stub lacks the default
    bundle: str = vl_convert.javascript_bundle(snippet=None, vl_version=VEGA_LITE)  # type: ignore[arg-type]
    return bundle.replace("</script", "<\\/script")

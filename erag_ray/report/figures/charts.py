"""Figures -> Vega-Lite specs for the page (by Altair) and SVG for Markdown (by vl-convert, without a browser).

Both packages are imported where they are used: they take a second. The specs hold their data and no address; their
background is transparent and they fix no colour of text or axes: the page gives them by a Vega config of its own theme,
a picture by `PICTURE_CONFIG`.

In a page call ``vegaEmbed`` with ``ast: true``: Vega then interprets its expressions instead of compiling them, which
works where a Content-Security-Policy forbids ``unsafe-eval``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from erag_ray.report.model import Figure

WIDTH = 560
"""Of a picture, in pixels."""
VEGA_LITE = "6.4"
"""The version that Altair writes, of those that vl-convert has."""
GREY, LIGHT_GREY = "#7a7f85", "#9aa0a6"
"""Of text, and of axes and grid: they can be read on white and on black."""
AXIS = {
    "labelColor": GREY,
    "titleColor": GREY,
    "domainColor": LIGHT_GREY,
    "tickColor": LIGHT_GREY,
    "gridColor": LIGHT_GREY,
}
PICTURE_CONFIG: Mapping[str, object] = {
    "background": "transparent",
    "axis": {**AXIS, "gridOpacity": 0.4, "titleFontWeight": "normal"},
    "header": {"labelColor": GREY, "titleColor": GREY},
    "legend": {"labelColor": GREY, "titleColor": GREY},
    "title": {"color": GREY},
    "text": {"color": GREY},
    "view": {"stroke": None},
}
"""Vega config of a picture, which does not know whether the page around it is light or dark."""


def vega(figure: Figure, width: int | None = None, *, is_picture: bool = False) -> dict[str, Any]:
    """Return the Vega-Lite spec of a figure, its data inline.

    Args:
        figure: what to draw.
        width: of the plot in pixels; None: that of the element it is embedded in. Several panels have
            a width of their own, whatever this says.
        is_picture: leave out what only a pointer or a screen reader would find.

    Raises:
        altair.SchemaValidationError: the spec is no Vega-Lite.
    """
    from erag_ray.report.figures.vega_lite import panels_of, rows_of, several_panels, single_panel

    rows = rows_of(figure)
    panels = panels_of(figure, rows)
    if len(panels) > 1:
        chart = several_panels(figure, rows, panels)
    else:
        chart = single_panel(figure, rows, "container" if width is None else width, *panels)
    spec: dict[str, Any] = chart.to_dict()
    # the address of its schema, and the defaults of Altair's theme
    for key in ("$schema", "config"):
        spec.pop(key, None)
    described = {**spec, "background": "transparent", "description": f"{figure.title}. {figure.caption}"}
    return _still(described) if is_picture else described


def _still(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without tooltips, labels for screen readers and marks that are not seen."""
    inner = spec.get("spec", spec)
    layers = [layer for layer in inner["layer"] if layer["mark"].get("opacity") != 0]
    for layer in layers:
        layer["mark"]["aria"] = False
        layer["encoding"].pop("tooltip", None)
    inner["layer"] = layers
    return spec


def svg(figure: Figure) -> str:
    """Return a figure as SVG that can be read on a light and on a dark background."""
    import vl_convert

    spec = {**vega(figure, WIDTH, is_picture=True), "config": PICTURE_CONFIG}
    picture: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    return picture


@functools.cache
def javascript_bundle() -> str:
    """Return the JavaScript of Vega, Vega-Lite and vega-embed (.9 MB) for all charts of a page.

    It defines ``window.vegaEmbed`` and may stand inside a ``<script>`` element.
    """
    import vl_convert

    # the type stub lacks the default
    bundle: str = vl_convert.javascript_bundle(snippet=None, vl_version=VEGA_LITE)  # type: ignore[arg-type]
    return bundle.replace("</script", "<\\/script")

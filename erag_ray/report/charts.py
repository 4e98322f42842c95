"""Figures -> Vega-Lite specs for the page (by Altair) and SVG for Markdown (by vl-convert, without a browser).

Both packages are imported where they are used: they take a second. The specs hold their data and no address; their
background is transparent and they fix no colour of text or axes, so that a Vega config (`THEMES`) can give them.

In a page: load `javascript_bundle()` and `TOOLTIP_CSS` once, then for each figure
``vegaEmbed(element, spec, {...EMBED_OPTIONS, config: THEMES.light})``. The option ``ast`` makes Vega interpret its
expressions instead of compiling them, which works where a Content-Security-Policy forbids ``unsafe-eval``.
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
EMBED_OPTIONS: Mapping[str, object] = {
    "mode": "vega-lite",
    "ast": True,
    "actions": False,
    "renderer": "svg",
    "defaultStyle": False,
    "tooltip": {"disableDefaultStyle": True},
}
"""What `vegaEmbed` must be called with under a Content-Security-Policy without ``unsafe-eval`` and inline styles."""
TOOLTIP_CSS = """
#vg-tooltip-element {
  position: fixed; z-index: 1000; visibility: hidden; padding: 6px 8px; font: 12px sans-serif; pointer-events: none;
  color: CanvasText; background: Canvas; border: 1px solid GrayText; border-radius: 4px;
}
#vg-tooltip-element.visible { visibility: visible; }
#vg-tooltip-element td { overflow-wrap: anywhere; max-width: 24em; vertical-align: top; }
#vg-tooltip-element td.key { opacity: 0.7; text-align: right; padding-right: 6px; }
"""
"""Style of the tooltips, for the page's own style sheet (with ``color-scheme: light dark``)."""


def _theme(text: str, lines: str) -> dict[str, object]:
    """A Vega config: the colours of text, and of axes and grid."""
    axis = {
        "labelColor": text,
        "titleColor": text,
        "domainColor": lines,
        "tickColor": lines,
        "gridColor": lines,
    }
    return {
        "background": "transparent",
        "axis": {**axis, "gridOpacity": 0.4, "titleFontWeight": "normal"},
        "header": {"labelColor": text, "titleColor": text},
        "legend": {"labelColor": text, "titleColor": text},
        "title": {"color": text},
        "text": {"color": text},
        "view": {"stroke": None},
    }


THEMES: Mapping[str, Mapping[str, object]] = {
    "light": _theme("#24292f", "#c8ccd1"),
    "dark": _theme("#e6edf3", "#484f58"),
    "both": _theme("#7a7f85", "#9aa0a6"),
}
"""Vega configs for a light page, a dark one, and a picture that does not know which."""


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
    from erag_ray.report.vega_lite import panels_of, rows_of, several_panels, single_panel

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

    spec = {**vega(figure, WIDTH, is_picture=True), "config": THEMES["both"]}
    picture: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    return picture


@functools.cache
def javascript_bundle() -> str:
    """Return the JavaScript of Vega, Vega-Lite and vega-embed (.9 MB) for all charts of a page.

    It defines ``window.vegaEmbed`` and may stand inside a ``<script>`` element. Under a Content-Security-Policy
    without ``unsafe-eval`` call ``vegaEmbed(element, spec, {...EMBED_OPTIONS, config: ...})``: ``ast: true`` is needed.
    """
    import vl_convert

    # the type stub lacks the default
    bundle: str = vl_convert.javascript_bundle(snippet=None, vl_version=VEGA_LITE)  # type: ignore[arg-type]
    return bundle.replace("</script", "<\\/script")

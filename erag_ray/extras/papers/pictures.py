"""Figures as SVG, by vl-convert, which needs no browser; legible on light and on dark backgrounds."""

from collections.abc import Mapping
from typing import Any

import vl_convert

from erag_ray.analyses.parts.model import Figure
from erag_ray.report.charts import VEGA_LITE, vega

WIDTH = 560
"""In pixels."""
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
"""Vega config of colors for light and dark backgrounds."""


def svg(figure: Figure) -> str:
    """Return a figure as SVG, without tooltips, accessibility labels and invisible marks."""
    spec = vega(figure, WIDTH)
    inner: dict[str, Any] = spec.get("spec", spec)
    inner["layer"] = [layer for layer in inner["layer"] if layer["mark"].get("opacity") != 0]
    for layer in inner["layer"]:
        layer["mark"]["aria"] = False
        layer["encoding"].pop("tooltip", None)
    spec["config"] = PICTURE_CONFIG
    picture: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    return picture

"""Figures -> Vega-Lite specs for the page (by Altair) and SVG for Markdown (by vl-convert, without a browser).

Both packages are imported where they are used: they take a second. The specs hold their data and no address; their
background is transparent and they fix no colour of text or axes, so that a Vega config (`THEMES`) can give them.

In a page: load `javascript_bundle()` once, then for each figure
``vegaEmbed(element, spec, {...EMBED_OPTIONS, config: THEMES.light})``. The option ``ast`` makes Vega interpret its
expressions instead of compiling them, which works where a Content-Security-Policy forbids ``unsafe-eval``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from erag_ray.report.model import Figure

if TYPE_CHECKING:
    import altair as alt

VEGA_LITE = "6.4"
"""The version that Altair writes, of those that vl-convert has."""
WIDTH, HEIGHT, PANEL_WIDTH, PANEL_HEIGHT, STEP = 560, 260, 210, 200, 22
"""In pixels; STEP: of a row that is a name."""
PANELS_ACROSS = 3
MAX_LOG_TICKS = 12
MAX_NAMED_BARS = 30
LABEL_WIDTH = 260
"""In pixels; longer names are cut."""
# Okabe & Ito, 2008; grey for their black and yellow, which one of two backgrounds would hide
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#8C6D31")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (4, 2, 1, 2, 1, 2), (1, 3), (10, 2, 2, 2, 2, 2))
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
# a high narrow bar: seen behind a circle at the same place
INTERVAL_SHAPES = ("circle", "M-.3,-1.6L.3,-1.6L.3,1.6L-.3,1.6Z", *SHAPES[1:])
EMBED_OPTIONS: Mapping[str, object] = {
    "mode": "vega-lite",
    "ast": True,
    "actions": False,
    "renderer": "svg",
    "defaultStyle": False,
    "tooltip": {"theme": "custom"},
}
"""What `vegaEmbed` must be called with under a Content-Security-Policy."""


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


def vega(figure: Figure, width: int | None = None) -> dict[str, Any]:
    """Return the Vega-Lite spec of a figure, its data inline.

    Args:
        figure: what to draw.
        width: of the plot in pixels; None: that of the element it is embedded in. Panels of a faceted figure have
            `PANEL_WIDTH`, whatever this says.

    Raises:
        altair.SchemaValidationError: the spec is no Vega-Lite.
    """
    rows = _rows(figure)
    panels = _panels(figure, rows)
    if len(panels) > 1:
        chart = _faceted(figure, rows, panels)
    else:
        chart = _single(figure, rows, "container" if width is None else width, *panels)
    spec: dict[str, Any] = chart.to_dict()
    # the address of its schema, and the defaults of Altair's theme
    for key in ("$schema", "config"):
        spec.pop(key, None)
    return {**spec, "background": "transparent", "description": f"{figure.title}. {figure.caption}"}


def _single(
    figure: Figure, rows: pl.DataFrame, width: int | str, title: str | None = None
) -> alt.TopLevelMixin:
    """A chart of one panel; the name of the only panel of a faceted figure is its title."""
    import altair as alt

    size = _size(figure, width, HEIGHT)
    named = {} if title is None else {"title": alt.TitleParams(title, fontWeight="normal", fontSize=11)}
    data = alt.InlineData(values=_values(rows))
    return alt.layer(*_layers(figure, rows)).properties(data=data, **size, **named)


def _faceted(figure: Figure, rows: pl.DataFrame, panels: list[str]) -> alt.TopLevelMixin:
    import altair as alt

    facet = alt.Facet(
        field=_field(str(figure.facet)),
        type="nominal",
        sort=panels,
        title=None,
        header=alt.Header(labelLimit=LABEL_WIDTH),
    )
    layers = alt.layer(*_layers(figure, rows)).properties(**_size(figure, PANEL_WIDTH, PANEL_HEIGHT))
    across = min(len(panels), PANELS_ACROSS)
    return layers.facet(facet=facet, columns=across, data=alt.InlineData(values=_values(rows)))


def svg(figure: Figure) -> str:
    """Return a figure as SVG that can be read on a light and on a dark background."""
    import vl_convert

    spec = {**vega(figure, WIDTH), "config": THEMES["both"]}
    picture: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    return picture


@functools.cache
def javascript_bundle() -> str:
    """Return the JavaScript of Vega, Vega-Lite and vega-embed (.9 MB) for all charts of a page.

    It defines ``window.vegaEmbed`` and may stand inside a ``<script>`` element. Under a Content-Security-Policy
    without ``unsafe-eval`` call ``vegaEmbed(element, spec, {...EMBED_OPTIONS, config: ...})``: ``ast: true`` is needed.
    """
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(vl_version=VEGA_LITE)
    return bundle.replace("</script", "<\\/script")


# --- data ---


def _rows(figure: Figure) -> pl.DataFrame:
    """The rows that can be drawn: x and y are known and finite; other values that are not are null."""
    floats = figure.data.with_columns(
        pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name)
        for name, kind in figure.data.schema.items()
        if kind.is_float()
    )
    return floats.drop_nulls([figure.x, figure.y])


def _values(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows without their nulls, which Vega would show in tooltips."""
    return [
        {key: value for key, value in row.items() if value is not None} for row in rows.iter_rows(named=True)
    ]


def _field(name: str) -> str:
    """A column's name as Vega-Lite reads it: dots and brackets are not paths."""
    return "".join(f"\\{mark}" if mark in ".[]\\'\"" else mark for mark in name)


def _is_name(figure: Figure, axis: str) -> bool:
    return not figure.data.schema[getattr(figure, axis)].is_numeric()


def _value_axis(figure: Figure) -> str:
    """The axis of values: x where y holds names."""
    return "x" if _is_name(figure, "y") else "y"


def _panels(figure: Figure, rows: pl.DataFrame) -> list[str]:
    """The names of a figure's panels, in order of appearance; none without a facet."""
    return [] if figure.facet is None else rows[figure.facet].unique(maintain_order=True).to_list()


def _size(figure: Figure, width: int | str, height: int) -> dict[str, Any]:
    import altair as alt

    return {"width": width, "height": alt.Step(STEP) if _is_name(figure, "y") else height}


# --- layers ---


def _layers(figure: Figure, rows: pl.DataFrame) -> Iterator[alt.Chart]:
    """The marks of a figure, those below first."""
    yield from _rule_layers(figure)
    if figure.low is not None and figure.high is not None:
        has_band = figure.mark == "line" and rows[figure.x].n_unique() > 1
        yield (_band if has_band else _interval)(figure, rows)
    if figure.mark == "line":
        yield _line(figure, rows)
    yield _bars(figure, rows) if figure.mark == "bar" else _points(figure, rows)


def _band(figure: Figure, rows: pl.DataFrame) -> alt.Chart:
    import altair as alt

    return _chart(figure, rows, alt.MarkDef(type="area", opacity=0.13), low=True, tooltip=False)


def _interval(figure: Figure, rows: pl.DataFrame) -> alt.Chart:
    import altair as alt

    return _chart(figure, rows, alt.MarkDef(type="rule", strokeWidth=1.5), low=True, tooltip=False)


def _line(figure: Figure, rows: pl.DataFrame) -> alt.Chart:
    import altair as alt

    return _chart(figure, rows, alt.MarkDef(type="line", strokeWidth=2), dash=True, tooltip=False)


def _points(figure: Figure, rows: pl.DataFrame) -> alt.Chart:
    import altair as alt

    # many would hide the line; unseen, they still have tooltips
    is_seen = figure.mark != "line" or rows[figure.x].n_unique() <= MAX_LOG_TICKS
    mark = alt.MarkDef(type="point", filled=True, size=60, opacity=1 if is_seen else 0)
    return _chart(figure, rows, mark, shape=True)


def _bars(figure: Figure, rows: pl.DataFrame) -> alt.Chart:
    import altair as alt

    return _chart(figure, rows, alt.MarkDef(type="bar"))


def _chart(
    figure: Figure,
    rows: pl.DataFrame,
    mark: alt.MarkDef,
    *,
    low: bool = False,
    dash: bool = False,
    shape: bool = False,
    tooltip: bool = True,
) -> alt.Chart:
    """One layer: a mark with the figure's encoding; ``low``: it reaches from the low to the high end."""
    import altair as alt

    channels = _positions(figure, rows, low=low)
    if figure.color is not None:
        names = list(figure.color_names) or rows[figure.color].unique(maintain_order=True).to_list()
        legend = _legend(figure)
        channels["color"] = _by_name(alt.Color, figure.color, names, COLORS, legend)
        if dash:
            channels["strokeDash"] = _by_name(alt.StrokeDash, figure.color, names, DASHES, legend)
        if shape:
            shapes = INTERVAL_SHAPES if figure.mark == "interval" else SHAPES
            of_shapes = None if figure.mark == "line" else legend
            channels["shape"] = _by_name(alt.Shape, figure.color, names, shapes, of_shapes)
    if tooltip:
        channels["tooltip"] = [_tooltip(name, kind) for name, kind in rows.schema.items()]
    return alt.Chart(mark=mark, encoding=alt.FacetedEncoding(**channels))


def _positions(figure: Figure, rows: pl.DataFrame, *, low: bool) -> dict[str, Any]:
    """The channels x and y, and where wanted the other end of an interval."""
    import altair as alt

    channels: dict[str, Any] = {"x": _position(figure, rows, "x"), "y": _position(figure, rows, "y")}
    if low and figure.low is not None and figure.high is not None:
        axis = _value_axis(figure)
        channels[axis].field = _field(figure.low)
        channels[f"{axis}2"] = (alt.X2 if axis == "x" else alt.Y2)(field=_field(figure.high))
    return channels


def _position(figure: Figure, rows: pl.DataFrame, axis: str) -> Any:
    import altair as alt

    name, title = (figure.x, figure.x_title) if axis == "x" else (figure.y, figure.y_title)
    channel: Any = alt.X if axis == "x" else alt.Y
    if _is_name(figure, axis):
        names = rows[name].unique(maintain_order=True).to_list()
        return channel(
            field=_field(name), type="nominal", sort=names, title=title, axis=alt.Axis(labelLimit=LABEL_WIDTH)
        )
    if axis == "x" and figure.mark == "bar":
        is_few = rows.height <= MAX_NAMED_BARS
        marks = alt.Axis(labels=is_few, ticks=is_few, labelAngle=0)
        return channel(field=_field(name), type="ordinal", title=title, axis=marks)
    at = rows[name].unique().sort().to_list()
    is_point = axis == "x" and figure.mark == "point"
    scale = alt.Scale(zero=figure.mark == "bar", **({"padding": 15, "nice": False} if is_point else {}))
    ticks: dict[str, Any] = {}
    if axis == "x" and figure.mark == "line":
        scale = alt.Scale(zero=False, nice=False)
    if axis == "x" and figure.mark == "line" and len(at) <= MAX_LOG_TICKS:
        is_wide = len(at) > 2 and at[0] > 0 and at[-1] >= 10 * at[0]
        scale = alt.Scale(type="log", nice=False) if is_wide else alt.Scale(zero=False)
        ticks = {"axis": alt.Axis(values=at, format="d", grid=False)}
    return channel(field=_field(name), type="quantitative", title=title, scale=scale, **ticks)


def _legend(figure: Figure) -> alt.Legend:
    """The legend below a chart: samples of dashed lines, or shapes."""
    import altair as alt

    stroke: dict[str, Any] = {"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2}
    dashed = stroke if figure.mark == "line" else {}
    return alt.Legend(
        title=None, orient="bottom", columns=2, labelLimit=LABEL_WIDTH, symbolOpacity=1, **dashed
    )


def _by_name(
    channel: Any, column: str, names: Sequence[str], values: Sequence[Any], legend: alt.Legend | None
) -> Any:
    """A channel that gives every name its own value, in order of appearance."""
    import altair as alt

    several = [values[number % len(values)] for number in range(len(names))]
    scale = alt.Scale(domain=list(names), range=[list(v) if isinstance(v, tuple) else v for v in several])
    return channel(field=_field(column), type="nominal", sort=list(names), scale=scale, legend=legend)


def _tooltip(name: str, kind: pl.DataType) -> alt.Tooltip:
    import altair as alt

    if kind.is_float():
        return alt.Tooltip(field=_field(name), type="quantitative", title=name, format=".3f")
    return alt.Tooltip(
        field=_field(name), type="quantitative" if kind.is_numeric() else "nominal", title=name
    )


def _rule_layers(figure: Figure) -> Iterator[alt.Chart]:
    """Constant values as dotted lines across, each with its name at one end; neighbours at opposite ends."""
    import altair as alt

    axis = _value_axis(figure)
    known = [(name, value) for name, value in figure.rules.items() if math.isfinite(value)]
    for number, (name, value) in enumerate(known):
        place = alt.XDatum(datum=value) if axis == "x" else alt.YDatum(datum=value)
        data = alt.InlineData(values=[{"rule": name}])
        rule = alt.MarkDef(type="rule", strokeDash=[2, 3], color="#888888")
        yield alt.Chart(data, mark=rule, encoding=alt.FacetedEncoding(**{axis: place}))
        yield alt.Chart(data, mark=_rule_text(axis, number), encoding=_rule_encoding(axis, place, number))


def _rule_text(axis: str, number: int) -> alt.MarkDef:
    import altair as alt

    if axis == "x":
        return alt.MarkDef(type="text", align="center", baseline="bottom", dy=-3)
    return alt.MarkDef(type="text", align="right" if number % 2 else "left", baseline="bottom", dy=-2)


def _rule_encoding(axis: str, place: Any, number: int) -> alt.FacetedEncoding:
    import altair as alt

    text = alt.Text(field="rule", type="nominal")
    if axis == "x":
        return alt.FacetedEncoding(x=place, y=alt.YValue(0), text=text)
    return alt.FacetedEncoding(x=alt.XValue("width" if number % 2 else 0), y=place, text=text)

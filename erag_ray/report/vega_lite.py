"""Build Altair charts from figures: data, layers of marks, and encodings. Imported lazily by `charts`."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import altair as alt
import polars as pl

from erag_ray.analyses.parts.model import Figure

HEIGHT, PANEL_WIDTH, PANEL_HEIGHT, STEP = 260, 180, 200, 22
"""Sizes in pixels; STEP is the height of one row of a categorical y axis."""
CHART_WIDTH, BESIDE_PANEL = 832, 20
"""Room for a chart on the page (52rem), and between its panels, in pixels."""
# not sorted by a list of names: Vega-Lite fails on names that contain a line separator (U+2028)
PANEL = "panel_number"
"""Column by which panels are sorted."""
STACK = "stack_number"
"""Column by which the colors of a stacked bar are sorted."""
MAX_LOG_TICKS = 12
MAX_NAMED_BARS = 30
LABEL_WIDTH = 260
"""Width in pixels; longer names are cut."""
# Okabe & Ito, 2008; grey replaces their black and yellow, which are invisible on one of the two backgrounds
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#8C6D31")
GREY = "#999999"
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (4, 2, 1, 2, 1, 2), (1, 3), (10, 2, 2, 2, 2, 2))
SHAPES = (
    "circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left",
)  # fmt: skip
# a tall narrow bar: visible behind a circle at the same position
INTERVAL_SHAPES = ("circle", "M-.3,-1.6L.3,-1.6L.3,1.6L-.3,1.6Z", *SHAPES[1:])


def single_panel(
    figure: Figure, rows: pl.DataFrame, width: int | str, title: str | None = None
) -> alt.TopLevelMixin:
    """Return a chart with one panel; the name of the only panel of a faceted figure becomes its title."""
    size = _size(figure, width, HEIGHT)
    named = {} if title is None else {"title": alt.TitleParams(title, fontWeight="normal", fontSize=11)}
    # fit-x: Vega-Lite warns that a height in steps cannot be fitted
    autosize = alt.AutoSizeParams(type="fit-x", contains="padding")
    fitted = {"autosize": autosize} if width == "container" else {}
    data = alt.InlineData(values=_values(rows))
    return alt.layer(*_layers(figure, rows)).properties(data=data, **size, **named, **fitted)


def several_panels(figure: Figure, rows: pl.DataFrame, panels: list[str]) -> alt.TopLevelMixin:
    sort, header = alt.EncodingSortField(field=PANEL, op="min"), alt.Header(labelLimit=LABEL_WIDTH)
    facet = alt.Facet(field=_field(str(figure.facet)), type="nominal", sort=sort, title=None, header=header)
    layers = alt.layer(*_layers(figure, rows)).properties(**_size(figure, PANEL_WIDTH, PANEL_HEIGHT))
    numbers = rows[str(figure.facet)].replace_strict(panels, range(len(panels)), return_dtype=pl.Int64)
    longest = max(rows[str(figure.y)].drop_nulls().str.len_chars(), default=0) if _is_name(figure, "y") else 0
    left = 3 * BESIDE_PANEL + min(6 * longest, LABEL_WIDTH)
    most = (CHART_WIDTH - left) // (PANEL_WIDTH + BESIDE_PANEL)
    across = math.ceil(len(panels) / math.ceil(len(panels) / most))
    data = alt.InlineData(values=_values(rows.with_columns(numbers.alias(PANEL))))
    return layers.facet(facet=facet, columns=across, data=data)


# --- data ---


def drawn_rows(figure: Figure) -> pl.DataFrame:
    """Return the rows with finite x and y; other non-finite values become null."""
    floats = figure.data.with_columns(
        pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name)
        for name, kind in figure.data.schema.items()
        if kind.is_float()
    )
    rows = floats.drop_nulls([figure.x, figure.y])
    if not _is_stacked(figure):
        return rows
    names = _color_names(figure, rows)
    number = pl.col(str(figure.color)).replace_strict(names, range(len(names)), return_dtype=pl.Int64)
    return rows.with_columns(number.alias(STACK))


def _color_names(figure: Figure, rows: pl.DataFrame) -> list[str]:
    return list(figure.color_names) or rows[str(figure.color)].unique(maintain_order=True).to_list()


def _is_stacked(figure: Figure) -> bool:
    """Whether each bar is cut into parts by color."""
    return figure.mark == "bar" and figure.color is not None and _is_name(figure, "y")


def _values(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as records without nulls, which Vega would show in tooltips."""
    return [
        {key: value for key, value in row.items() if value is not None} for row in rows.iter_rows(named=True)
    ]


def _field(name: str) -> str:
    """Escape a column name for Vega-Lite, which reads dots and brackets as paths."""
    return "".join(f"\\{mark}" if mark in ".[]\\'\"" else mark for mark in name)


def _is_name(figure: Figure, axis: str) -> bool:
    return not figure.data.schema[getattr(figure, axis)].is_numeric()


def _value_axis(figure: Figure) -> str:
    """Return the quantitative axis: x if y is categorical, else y."""
    return "x" if _is_name(figure, "y") else "y"


def panels_of(figure: Figure, rows: pl.DataFrame) -> list[str]:
    return [] if figure.facet is None else rows[figure.facet].unique(maintain_order=True).to_list()


def _size(figure: Figure, width: int | str, height: int) -> dict[str, Any]:
    return {"width": width, "height": alt.Step(STEP) if _is_name(figure, "y") else height}


# --- layers ---


def _layers(figure: Figure, rows: pl.DataFrame) -> Iterator[alt.Chart]:
    is_line = figure.mark == "line"
    yield from _rule_layers(figure)
    if figure.low is not None and figure.high is not None:
        has_band = is_line and rows[figure.x].n_unique() > 1
        band, interval = alt.MarkDef(type="area", opacity=0.13), alt.MarkDef(type="rule", strokeWidth=1.5)
        yield _chart(figure, rows, band if has_band else interval, low=True, tooltip=False)
    if is_line:
        yield _chart(figure, rows, alt.MarkDef(type="line", strokeWidth=2), dash=True, tooltip=False)
    if figure.mark != "bar":
        # many points would hide the dashes that distinguish lines; invisible points still have tooltips
        is_seen = not is_line or rows[figure.x].n_unique() <= MAX_LOG_TICKS
        mark = alt.MarkDef(type="point", filled=True, size=60, opacity=1 if is_seen else 0)
        yield _chart(figure, rows, mark, shape=not is_line)
    elif _is_name(figure, "y"):
        yield _chart(figure, rows, alt.MarkDef(type="bar"))
    else:
        # many bars overlap: no gaps between them
        width = alt.RelativeBandSize(band=0.9 if rows.height <= MAX_NAMED_BARS else 1.8)
        yield _chart(figure, rows, alt.MarkDef(type="bar", width=width))


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
    """Return one layer: a mark with the figure's encoding; ``low``: it spans from the low to the high end."""
    channels: dict[str, Any] = {"x": _position(figure, rows, "x"), "y": _position(figure, rows, "y")}
    if low:
        axis = _value_axis(figure)
        channels[axis].field = _field(str(figure.low))
        channels[f"{axis}2"] = (alt.X2 if axis == "x" else alt.Y2)(field=_field(str(figure.high)))
    if figure.color is None:
        mark.color = COLORS[0]
    else:
        names = _color_names(figure, rows)
        legend = _legend(figure)
        others = itertools.cycle(COLORS)
        colors = [GREY if name in figure.grey else next(others) for name in names]
        channels["color"] = _by_name(alt.Color, figure.color, names, colors, legend)
        if dash:
            channels["strokeDash"] = _by_name(alt.StrokeDash, figure.color, names, DASHES, legend)
        if shape:
            shapes = INTERVAL_SHAPES if figure.mark == "interval" else SHAPES
            channels["shape"] = _by_name(alt.Shape, figure.color, names, shapes, legend)
    if _is_stacked(figure):
        channels["order"] = alt.Order(field=STACK, type="quantitative")
    if tooltip:
        channels["tooltip"] = [_tooltip(name, kind) for name, kind in rows.schema.items() if name != STACK]
    return alt.Chart(mark=mark, encoding=alt.FacetedEncoding(**channels))


def _position(figure: Figure, rows: pl.DataFrame, axis: str) -> Any:
    """Return the channel x or y: names in order of appearance, indices of bars, or values."""
    name, title = (figure.x, figure.x_title) if axis == "x" else (figure.y, figure.y_title)
    channel = functools.partial(alt.X if axis == "x" else alt.Y, field=_field(name), title=title)
    if _is_name(figure, axis):
        # names explain themselves
        channel.keywords["title"] = None
        names = rows[name].unique(maintain_order=True).to_list()
        labels = alt.Axis(labelLimit=LABEL_WIDTH, maxExtent=LABEL_WIDTH + 20)
        return channel(type="nominal", sort=None, scale=alt.Scale(domain=names), axis=labels)
    if axis == "x" and figure.mark == "bar" and not _is_name(figure, "y"):
        is_few = rows.height <= MAX_NAMED_BARS
        return channel(type="ordinal", axis=alt.Axis(labels=is_few, ticks=is_few, labelAngle=0))
    if axis == "x" and figure.mark == "line":
        return channel(type="quantitative", **_scale_of_lines(rows[name].unique().sort().to_list()))
    margin = {"padding": 15, "nice": False} if axis == "x" and figure.mark == "point" else {}
    return channel(type="quantitative", scale=alt.Scale.from_dict({"zero": figure.mark == "bar", **margin}))


def _scale_of_lines(values: Sequence[float]) -> dict[str, Any]:
    """Return scale and axis of x for lines: a tick per value if there are few, on a log scale if the range is wide."""
    if len(values) > MAX_LOG_TICKS:
        return {"scale": alt.Scale(zero=False, nice=False)}
    is_wide = len(values) > 2 and values[0] > 0 and values[-1] >= 10 * values[0]
    scale = alt.Scale(type="log", nice=False) if is_wide else alt.Scale(zero=False)
    return {"scale": scale, "axis": alt.Axis(values=list(values), format="~r", grid=False)}


def _legend(figure: Figure) -> alt.Legend:
    stroke: dict[str, Any] = {"symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 2}
    dashed = stroke if figure.mark == "line" else {}
    # names of reference lines stand above the chart
    orient: Literal["bottom", "top"] = "bottom" if figure.rules and _value_axis(figure) == "x" else "top"
    return alt.Legend(
        title=None, orient=orient, columns=2, offset=6, labelLimit=LABEL_WIDTH, symbolOpacity=1, **dashed
    )


def _by_name(
    channel: Any, column: str, names: Sequence[str], values: Sequence[Any], legend: alt.Legend
) -> Any:
    """Return a channel that maps every name to a value, in order of appearance."""
    cycled = [values[number % len(values)] for number in range(len(names))]
    scale = alt.Scale(domain=list(names), range=[list(v) if isinstance(v, tuple) else v for v in cycled])
    return channel(field=_field(column), type="nominal", sort=None, scale=scale, legend=legend)


def _tooltip(name: str, kind: pl.DataType) -> alt.Tooltip:
    form: dict[str, Any] = {"format": ".3g"} if kind.is_float() else {}
    kind_of_field: Literal["quantitative", "nominal"] = "quantitative" if kind.is_numeric() else "nominal"
    return alt.Tooltip(field=_field(name), type=kind_of_field, title=name, **form)


def _rule_layers(figure: Figure) -> Iterator[alt.Chart]:
    """Yield dotted reference lines, each with its name at one end; neighbours at opposite ends."""
    axis = _value_axis(figure)
    text = alt.Text(field="rule", type="nominal")
    finite = [(name, value) for name, value in figure.rules.items() if math.isfinite(value)]
    for number, (name, value) in enumerate(finite):
        data = alt.InlineData(values=[{"rule": name}])
        line = alt.MarkDef(type="rule", strokeDash=[2, 3], color="#888888")
        datum: Any = alt.XDatum(datum=value) if axis == "x" else alt.YDatum(datum=value)
        yield alt.Chart(data, mark=line, encoding=alt.FacetedEncoding(**{axis: datum}))
        if axis == "x":
            label = alt.MarkDef(type="text", align="center", baseline="bottom", dy=-3)
            encoding = alt.FacetedEncoding(x=datum, y={"value": 0}, text=text)
        else:
            is_right = number % 2 == 1
            label = alt.MarkDef(type="text", align="right" if is_right else "left", baseline="bottom", dy=-2)
            encoding = alt.FacetedEncoding(x={"value": "width" if is_right else 0}, y=datum, text=text)
        yield alt.Chart(data, mark=label, encoding=encoding)

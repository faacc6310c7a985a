"""Plots as inline SVG and a little HTML around it: no script, no library, no request, a few kilobytes each.

The drawing stretches to whatever width there is; labels are HTML and keep their size, on a phone as on a wall. Colours
are classes that the style sheet fills in, for light and for dark. Every mark tells its numbers in a `<title>`.
All text goes through `Markup.format`, which escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from taskharbor.pipeline.report_axes import Axis, Tick, linear, logarithmic, times
from taskharbor.pipeline.report_words import visible

WIDE, HIGH = 1000, 100
"""The drawing's own units. Both are stretched."""
MOST_WIDE = 80
"""Of a bar: a single one must not be a wall."""
MOST_ON_PHONE = 4
"""Labels along an axis."""
LEAST_POINTS = 3
"""Of a line: through two it would claim to know what was between."""
_NOTHING = Markup()


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    colour: str
    """A class of the style sheet."""
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Marker:
    """A line across the plot, such as an objective."""

    name: str
    value: float


def bars(
    label: str,
    at: Sequence[datetime],
    width: timedelta,
    stack: Sequence[Series],
    tips: Sequence[str],
    line: Series | None = None,
) -> Markup:
    """Bars of one bucket each, with the series on top of one another, and a line before them."""
    tops = [0.0, *(sum(each.values[place] or 0 for each in stack) for place in range(len(at)))]
    axis = linear(max([*tops, *(value or 0 for value in line.values)] if line else tops))
    span = _Span(at, width)
    paths = [_NOTHING]
    floor = [0.0] * len(at)
    for each in stack:
        path = []
        for place, value in enumerate(each.values):
            if value:
                low, high = HIGH * (1 - axis.place(floor[place])), HIGH * (1 - axis.place(floor[place] + value))
                left = span.middle(place) - span.bar / 2
                path.append(f"M{left:.1f} {low:.1f}V{high:.1f}h{span.bar:.1f}V{low:.1f}z")
                floor[place] += value
        if path:
            paths.append(Markup('<path class="f-{}" d="{}"/>').format(each.colour, "".join(path)))
    if line is not None:
        paths.append(_line(line, axis, span))
    legend = [*((each, "box") for each in stack if any(each.values)), *([(line, "line")] if line else [])]
    return _plot(label, axis, span, Markup().join(paths), tips, legend)


def lines(
    label: str,
    at: Sequence[datetime],
    width: timedelta,
    series: Sequence[Series],
    tips: Sequence[str],
    *,
    marker: Marker | None = None,
    of_time: bool = False,
    filled: bool = False,
) -> Markup:
    """Lines with holes where there is nothing. `of_time` has a logarithmic axis of lengths of time."""
    values = [value for each in series for value in each.values if value is not None]
    if marker is not None:
        values.append(marker.value)
    axis = logarithmic(values) if of_time else linear(max(values, default=1.0))
    span = _Span(at, width)
    drawn = [_area(series[0], axis, span)] if filled and series else []
    drawn += [_line(each, axis, span) for each in series]
    legend: list[tuple[Series, str]] = [(each, "line") for each in series] if len(series) > 1 else []
    if marker is not None:
        y = HIGH * (1 - axis.place(marker.value))
        drawn.append(Markup('<path class="s-marker" d="M0 {0}H{1}"/>').format(f"{y:.1f}", WIDE))
        legend.append((Series(marker.name, "marker", ()), "line"))
    return _plot(label, axis, span, Markup().join(drawn), tips, legend)


class _Span:
    """Buckets side by side along the time that they cover."""

    def __init__(self, at: Sequence[datetime], width: timedelta) -> None:
        self.at = at
        self.first, self.last = at[0], at[-1] + width
        self._reach = self.last - self.first
        self.wide = WIDE * (width / self._reach)
        self.bar = min(self.wide * (0.76 if len(at) < 60 else 0.88), MOST_WIDE)
        self.width = width

    def left(self, place: int) -> float:
        return WIDE * ((self.at[place] - self.first) / self._reach)

    def middle(self, place: int) -> float:
        return self.left(place) + self.wide / 2

    def follows(self, place: int) -> bool:
        """Whether a bucket comes right after the one before it, among enough of them to make a line."""
        if len(self.at) < LEAST_POINTS or place == 0:
            return False
        return self.at[place] - self.at[place - 1] <= self.width * 1.5


def _runs(series: Series, axis: Axis, span: _Span) -> list[list[tuple[float, float]]]:
    """The points of a series, each run of them without a hole."""
    found: list[list[tuple[float, float]]] = []
    open_ = False
    for place, value in enumerate(series.values):
        if value is None:
            open_ = False
            continue
        if not (open_ and span.follows(place)):
            found.append([])
        open_ = True
        found[-1].append((span.middle(place), HIGH * (1 - axis.place(value))))
    return found


def _line(series: Series, axis: Axis, span: _Span) -> Markup:
    path = []
    for run in _runs(series, axis, span):
        if len(run) == 1:  # a point alone would have no length, and not show
            (x, y), half = run[0], max(2.0, min(span.wide / 2, 12 if len(span.at) >= LEAST_POINTS else span.bar * 0.7))
            path.append(f"M{x - half:.1f} {y:.1f}h{2 * half:.1f}")
        else:
            path.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run))
    return Markup('<path class="s-{}" d="{}"/>').format(series.colour, "".join(path))


def _area(series: Series, axis: Axis, span: _Span) -> Markup:
    path = []
    for run in _runs(series, axis, span):
        edge = span.wide / 2
        points = [(run[0][0] - edge, run[0][1]), *run, (run[-1][0] + edge, run[-1][1])]
        path.append(
            f"M{points[0][0]:.1f} {HIGH}L" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + f"V{HIGH}z"
        )  # fmt: skip
    return Markup('<path class="a-{}" d="{}"/>').format(series.colour, "".join(path))


def _plot(
    label: str, axis: Axis, span: _Span, drawn: Markup, tips: Sequence[str], legend: Sequence[tuple[Series, str]]
) -> Markup:
    grid = "".join(f"M0 {HIGH * (1 - tick.place):.1f}H{WIDE}" for tick in axis.ticks)
    bands = Markup().join(
        Markup('<rect class="band" x="{}" width="{}" height="100"><title>{}</title></rect>').format(
            f"{span.left(place):.1f}", f"{span.wide:.1f}", visible(tip)
        )
        for place, tip in enumerate(tips)
    )
    # A label names the bucket that begins there, and stands below the middle of it as its bar or point does.
    shift = span.wide / WIDE / 2
    along = [
        Tick(tick.place + shift, tick.label)
        for tick in times(span.first, span.last, min(span.width, timedelta(days=1)))
        if tick.place + shift <= 1
    ]
    return Markup(
        '<div class="plot">{}<div class="ys" aria-hidden="true">{}</div>'
        '<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path class="grid" d="{}"/>{}{}</svg>'
        '<div class="xs" aria-hidden="true">{}</div></div>'
    ).format(_legend(legend), _labels(axis.ticks, "bottom"), label, grid, drawn, bands, _labels(along, "left"))


def _labels(ticks: Sequence[Tick], side: str) -> Markup:
    """Those of one axis. Every second of many gives way on a phone; one at the very end would stick out."""
    along = side == "left"
    found = []
    for place, tick in enumerate(ticks):
        if along and tick.place > 0.97:
            continue
        gives_way = Markup(' class="odd"') if along and place % 2 and len(ticks) > MOST_ON_PHONE else _NOTHING
        found.append(
            Markup('<span style="{}:{}%"{}>{}</span>').format(side, f"{tick.place * 100:.1f}", gives_way, tick.label)
        )
    return Markup().join(found)


def _legend(entries: Sequence[tuple[Series, str]]) -> Markup:
    if not entries:
        return _NOTHING
    shown = Markup().join(
        Markup('<li><i class="{} k-{}"></i>{}</li>').format(kind, each.colour, visible(each.name))
        for each, kind in entries
    )
    return Markup('<ul class="legend">{}</ul>').format(shown)


# --- Small ones, which stand inside a line or a cell ---------------------------------------------------------------


def spark(values: Sequence[float], tips: Sequence[str], colour: str) -> Markup:
    """Tiny bars."""
    most = max(values, default=0) or 1
    step = WIDE / max(len(values), 1)
    drawn = Markup().join(
        Markup('<g><rect class="band" x="{x}" width="{full}" height="100"/>'
        '<rect class="f-{colour}" x="{x}" y="{y}" width="{wide}" height="{high}"/><title>{tip}</title></g>').format(
            x=f"{place * step:.1f}", full=f"{step:.1f}", wide=f"{step * 0.86:.1f}", colour=colour,
            y=f"{HIGH - max(HIGH * value / most, 5 if value else 2):.1f}",
            high=f"{max(HIGH * value / most, 5 if value else 2):.1f}", tip=visible(tip),
        )
        for place, (value, tip) in enumerate(zip(values, tips, strict=True))
    )  # fmt: skip
    return Markup('<svg class="spark" viewBox="0 0 1000 100" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(drawn)  # fmt: skip


def strip(states: Sequence[str], tips: Sequence[str]) -> Markup:
    """Cells side by side, each in the colour of its state: good, watch, bad, few or none."""
    step = WIDE / max(len(states), 1)
    drawn = Markup().join(
        Markup('<rect class="v-{}" x="{}" width="{}" height="100"><title>{}</title></rect>').format(
            state, f"{place * step:.1f}", f"{step * 0.92:.1f}", visible(tip)
        )
        for place, (state, tip) in enumerate(zip(states, tips, strict=True))
        if state != "none"
    )
    return Markup('<svg class="strip" viewBox="0 0 1000 100" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(drawn)  # fmt: skip


def meter(part: float, tip: str, colour: str, mark: float | None = None) -> Markup:
    """A bar for a share, with a mark where it should be."""
    at = _NOTHING
    if mark is not None:
        at = Markup('<b style="left:{}%"></b>').format(f"{min(1.0, mark) * 100:.1f}")
    return Markup('<span class="meter" title="{}"><i class="k-{}" style="width:{}%"></i>{}</span>').format(
        visible(tip), colour, f"{min(1.0, max(0.0, part)) * 100:.1f}", at
    )


def ranges(values: Sequence[tuple[float, float, float]], tips: Sequence[str]) -> list[Markup]:
    """For each of a list: p50, p95 and p99 on one logarithmic scale that all share, so that rows compare."""
    axis = logarithmic([value for each in values for value in each])
    return [
        Markup(
            '<span class="range" title="{}"><i class="far" style="left:{}%;width:{}%"></i>'
            '<i class="near" style="left:{}%;width:{}%"></i><b style="left:{}%"></b></span>'
        ).format(visible(tip), *(f"{place:.1f}" for place in _places(axis, each)))
        for each, tip in zip(values, tips, strict=True)
    ]


def _places(axis: Axis, values: tuple[float, float, float]) -> tuple[float, ...]:
    p50, p95, p99 = (axis.place(value) * 100 for value in values)
    return p95, max(0.8, p99 - p95), p50, max(0.8, p95 - p50), p50

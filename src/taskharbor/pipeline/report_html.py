"""The page: numbers in, one HTML file out that needs nothing else, asks nobody for anything, and prints well.

Queues, types, tenants, workers and errors come from jobs, so from anybody. The template escapes everything, control
characters are spelled out, and the page's own policy forbids the browser to load or to run anything but its one script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import MissingExtra
from taskharbor.pipeline import report_words as words
from taskharbor.pipeline.report_findings import usual_wait
from taskharbor.pipeline.report_numbers import OUTCOMES, Counts, LatencyBucket, Promise, Report

if TYPE_CHECKING:
    from markupsafe import Markup

SHOWN: Final = 15
"""Rows of a table on the page; JSON has more."""
SHOWN_ERRORS: Final = 8
_STEPS: Final = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
_CLASS_COLOURS: Final = ("c1", "c2", "c3", "c4", "c5", "c6")
_SHARES: Final = ("p50", "p95", "p99")


def page(report: Report) -> str:
    """The report as HTML. Raises MissingExtra where Jinja is not installed."""
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingExtra("a report's page needs jinja2: pip install 'taskharbor[spark]'") from None

    def shown(value: Any) -> Any:
        if isinstance(value, Markup):
            return value
        return words.visible(value) if isinstance(value, str) else value

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=shown, trim_blocks=True, lstrip_blocks=True
    )
    for name in (
        "short",
        "gist",
        "count",
        "compact",
        "share",
        "seconds",
        "rate",
        "size",
        "moment",
        "brief",
        "ago",
        "many",
        "glued",
    ):
        environment.filters[name] = getattr(words, name)
    script = _text("report.js")
    template = environment.from_string(_text("report.html"))
    return template.render(
        report=report,
        style=Markup(_text("report.css")),  # noqa: S704  # ours, and the same on every page
        script=Markup(script),  # noqa: S704
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        charts={} if report.empty else charts_of(report),
        shown=SHOWN,
        shown_errors=SHOWN_ERRORS,
        weekdays=words.WEEKDAYS,
        heat=heat_of(report),
    )


def _text(name: str) -> str:
    return files("taskharbor.pipeline").joinpath("templates", name).read_text("utf-8")


def charts_of(report: Report) -> dict[str, Any]:
    """Every plot of the page, by name; those beside rows as lists."""
    return {
        "throughput": throughput_chart(report),
        "wait": _latency_chart(report, "wait"),
        "run": _latency_chart(report, "run"),
        "capacity": _capacity_chart(report),
        "failures": _failures_chart(report),
        "ranges": _type_ranges(report),
        "sparks": _failure_sparks(report),
        "tenants": _tenant_meters(report),
        "workers": _worker_meters(report),
        "promises": [_promise_strip(report, each) for each in report.slo.promises[:SHOWN]],
        "shares": _share_meters(report),
        "compute": _compute_meters(report),
    }


# --- Over time ---------------------------------------------------------------------------------------------------


def throughput_chart(report: Report) -> Markup:
    from taskharbor.pipeline.report_charts import Series, bars

    buckets = report.throughput
    stack = [Series(name, name, [getattr(each.counts, name) for each in buckets]) for name in OUTCOMES]
    made = Series("jobs made", "made", [each.counts.enqueued for each in buckets])
    tips = [f"{_bucket(each.at, report.window.grain)}\n{_count_lines(each.counts)}" for each in buckets]
    label = f"Attempts by how they ended, and jobs made, by the {report.window.grain}"
    return bars(label, [each.at for each in buckets], _STEPS[report.window.grain], stack, tips, made)


def _count_lines(counts: Counts) -> str:
    lines = [f"{words.count(counts.enqueued)} jobs made"]
    lines += [f"{words.count(many)} {name}" for name in OUTCOMES if (many := getattr(counts, name))]
    return "\n".join(lines)


def _bucket(at: Any, grain: str) -> str:
    return f"{words.WEEKDAYS[at.weekday()]} {at.day} {at:%b}" if grain == "day" else words.brief(at)


def _latency_chart(report: Report, measure: str) -> Markup | None:
    from taskharbor.pipeline.report_charts import LEAST_POINTS, Marker, Series, lines

    buckets = report.latency
    if len(buckets) < LEAST_POINTS:
        return None
    grain = "day" if report.window.grain == "day" else "hour"
    series = [
        Series(name, name, [getattr(getattr(each, measure), f"{name}_s") for each in buckets]) for name in _SHARES
    ]
    limit = usual_wait([each for each in report.slo.promises if each.objective == "wait" and each.current])
    marker = None
    if measure == "wait" and limit is not None:
        marker = Marker(f"objective {words.seconds(limit)}", limit)
    tips = [_latency_tip(each, measure, grain) for each in buckets]
    label = f"How long attempts {'waited' if measure == 'wait' else 'ran'}, by the {grain}: median, p95 and p99"
    at = [each.at for each in buckets]
    return lines(label, at, _STEPS[grain], series, tips, marker=marker, of_time=True)


def _latency_tip(bucket: LatencyBucket, measure: str, grain: str) -> str:
    spread = getattr(bucket, measure)
    told = [f"{name} {words.seconds(getattr(spread, f'{name}_s'))}" for name in (*_SHARES, "max")]
    return "\n".join([_bucket(bucket.at, grain), *told, words.many(bucket.attempts, "attempt")])


def _capacity_chart(report: Report) -> Markup | None:
    from taskharbor.pipeline.report_charts import LEAST_POINTS, Series, lines

    hours = report.workers.capacity
    if len(hours) < LEAST_POINTS:
        return None
    tips = [
        f"{words.brief(each.at)}\n{each.busy_slots:.2f} slots busy{' at most' if each.at_most else ''}\n"
        f"{words.many(each.workers, 'worker')}"
        for each in hours
    ]
    series = [Series("slots busy", "busy", [each.busy_slots for each in hours])]
    return lines(
        "Slots that were busy on average, by the hour",
        [each.at for each in hours],
        _STEPS["hour"],
        series,
        tips,
        filled=True,
    )


def _failures_chart(report: Report) -> Markup | None:
    from datetime import UTC, datetime

    from taskharbor.pipeline.report_charts import Series, bars

    failures = report.failures
    if not failures.classes or len(failures.days) < 2:
        return None
    at = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in failures.days]
    stack = [
        Series(words.short(each.error_class, 30), colour, each.by_day)
        for each, colour in zip(failures.classes, _CLASS_COLOURS, strict=False)
    ]
    tips = []
    for place, day in enumerate(at):
        told = [f"{words.count(each.by_day[place])} {words.short(each.error_class, 60)}"
                for each in failures.classes if each.by_day[place]]  # fmt: skip
        tips.append("\n".join([_bucket(day, "day"), *(told or ["no failure"])]))
    return bars("Failed attempts by class of error, by the day", at, _STEPS["day"], stack, tips)


# --- Beside rows -------------------------------------------------------------------------------------------------


def _type_ranges(report: Report) -> list[Markup]:
    from taskharbor.pipeline.report_charts import ranges

    chosen = report.types[:SHOWN]
    tips = [
        "ran " + ", ".join(f"{name} {words.seconds(getattr(each.run, f'{name}_s'))}" for name in (*_SHARES, "max"))
        for each in chosen
    ]
    return ranges([(each.run.p50_s, each.run.p95_s, each.run.p99_s) for each in chosen], tips)


def _compute_meters(report: Report) -> list[Markup]:
    from taskharbor.pipeline.report_charts import meter

    return [
        meter(each.compute_share, f"{words.seconds(each.compute_s)} of run time", "succeeded")
        for each in report.types[:SHOWN]
    ]


def _failure_sparks(report: Report) -> list[Markup | None]:
    from taskharbor.pipeline.report_charts import spark

    days = report.failures.days
    if len(days) < 2:
        return [None for _ in report.failures.fingerprints[:SHOWN_ERRORS]]
    return [
        spark(each.by_day, [f"{day.day} {day:%b}: {words.count(many)}"
                            for day, many in zip(days, each.by_day, strict=True)], "dead")
        for each in report.failures.fingerprints[:SHOWN_ERRORS]
    ]  # fmt: skip


def _share_meters(report: Report) -> list[Markup]:
    from taskharbor.pipeline.report_charts import meter

    return [
        meter(each.share, f"{words.share(each.share)} of all attempts that failed", "dead")
        for each in report.failures.fingerprints[:SHOWN_ERRORS]
    ]


def _tenant_meters(report: Report) -> list[Markup]:
    from taskharbor.pipeline.report_charts import meter

    fair = report.tenants.fair_share
    return [
        meter(
            each.share,
            f"{words.share(each.share)} of run time; a fair share is {words.share(fair)}",
            "noisy" if each.noisy else "succeeded",
            fair,
        )
        for each in report.tenants.tenants[:SHOWN]
    ]


def _worker_meters(report: Report) -> list[Markup | None]:
    from taskharbor.pipeline.report_charts import meter

    return [
        None
        if each.busy_share is None
        else meter(each.busy_share, f"{words.share(each.busy_share)} of the slots that it needed", "busy")
        for each in report.workers.workers[:SHOWN]
    ]


def _promise_strip(report: Report, promise: Promise) -> Markup:
    from taskharbor.pipeline.report_charts import strip

    states, tips = [], []
    for at, part, enough in zip(report.slo.times, promise.by_time, promise.enough_by_time, strict=True):
        states.append(verdict(part, promise.target, enough=enough))
        told = "nothing ran" if part is None else words.share(part, near_one=True)
        tips.append(f"{words.brief(at)}: {told}{', too few to tell' if states[-1] == 'few' else ''}")
    return strip(states, tips)


def verdict(attainment: float | None, target: float, *, enough: bool = True) -> str:
    """`good` while the promise is kept, `watch` up to ten times the errors that it allows, `bad` beyond. `few` where
    it is not kept, and there were too few attempts to call that broken."""
    if attainment is None:
        return "none"
    burn = (1 - attainment) / (1 - target)
    if burn <= 1:
        return "good"
    return "few" if not enough else "watch" if burn <= 10 else "bad"


def heat_of(report: Report) -> Sequence[Sequence[tuple[float, str]]]:
    """Seven rows of twenty-four: how strong the colour is, and what to say of it. Strength -1 is an hour never seen."""
    most = max((cell.mean for cell in report.arrivals.cells), default=0.0) or 1.0
    rows: list[list[tuple[float, str]]] = [[] for _ in words.WEEKDAYS]
    for cell in report.arrivals.cells:
        name = f"{words.WEEKDAYS[cell.weekday]} {words.hour_of(cell.hour)}"
        if not cell.weeks:
            rows[cell.weekday].append((-1.0, f"{name}: no data"))
            continue
        mean = words.count(cell.mean) if cell.mean >= 10 or not cell.mean % 1 else f"{cell.mean:.1f}"
        over = f", mean of {cell.weeks} weeks" if cell.weeks > 1 else ""
        rows[cell.weekday].append((round(cell.mean / most, 3), f"{name}: {mean} jobs{over}"))
    return rows

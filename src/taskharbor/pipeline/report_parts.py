"""From gold to numbers: what failed, who was loud, who worked, what was promised, when jobs come, what was checked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline.gold import NOISY_LEAST, NOISY_TIMES
from taskharbor.pipeline.report_numbers import (
    MOST,
    Arrivals,
    Audit,
    CapacityBucket,
    Cell,
    CheckState,
    Counts,
    ErrorClass,
    Failures,
    Fingerprint,
    Promise,
    Promises,
    Tenant,
    Tenants,
    WorkerNumbers,
    Workers,
)
from taskharbor.pipeline.report_sums import MOST_BUCKETS, grouped
from taskharbor.pipeline.slo import is_enough

if TYPE_CHECKING:
    from taskharbor.pipeline.report_gold import Gold

MOST_CLASSES: Final = 5
"""Drawn apart; the rest is one."""
MOST_NAMES: Final = 10
MOST_TIMES: Final = 60
SHORT_S: Final = 0.1
"""Workers settle what ended meanwhile together: for attempts of a few milliseconds the wait for that is most of it."""
OTHER_CLASSES: Final = "all others"
_DAY: Final = timedelta(days=1)


# --- Failures ----------------------------------------------------------------------------------------------------


def failures(gold: Gold, counts: Counts) -> Failures:
    days = _days(gold)
    place = {day: number for number, day in enumerate(days)}
    found: dict[str, dict[str, Any]] = {}
    classes: dict[str, list[int]] = defaultdict(lambda: [0] * len(days))
    for row in gold.failures.to_pylist():
        name = row["error_class"] or "Error"
        classes[name][place[row["day"]]] += row["failures"]
        one = found.setdefault(
            row["fingerprint"],
            {"error_class": name, "sample": "", "failures": 0, "dead": 0, "burned_s": 0.0, "last": row["last_seen"]}
            | {"first": row["first_seen"], "by_day": [0] * len(days)}
            | {name: Counter() for name in ("queues", "types", "tenants")},
        )
        one["sample"] = max(one["sample"], row["sample"] or "")
        one["failures"] += row["failures"]
        one["dead"] += row["dead"]
        one["burned_s"] += row["burned_s"] or 0.0
        one["last"] = max(one["last"], row["last_seen"])
        one["first"] = min(one["first"], row["first_seen"])
        one["by_day"][place[row["day"]]] += row["failures"]
        one["queues"][row["queue"]] += row["failures"]
        one["types"][row["type"]] += row["failures"]
        one["tenants"].update(row["tenants"] or ())
    burned = max(counts.burned, sum(one["failures"] for one in found.values()))
    ranked = sorted(found.items(), key=lambda item: (-item[1]["failures"], item[0]))
    prints = [_fingerprint(key, one, burned, gold) for key, one in ranked[:MOST]]
    return Failures(burned, counts.started, days, _classes(classes), prints, len(ranked))


def _days(gold: Gold) -> list[date]:
    """Every day of the window, without holes."""
    known = [*gold.failures["day"].to_pylist(), *(at.date() for at in gold.throughput["bucket"].to_pylist())]
    if not known:
        return []
    first, last = min(known), max(known)
    if (last - first).days > MOST_BUCKETS:
        return sorted(set(known))
    return [first + number * _DAY for number in range((last - first).days + 1)]


def _fingerprint(key: str, one: Mapping[str, Any], burned: int, gold: Gold) -> Fingerprint:
    first = min(one["first"], gold.first_failures.get(key, one["first"]))
    newly = gold.newest is not None and gold.oldest is not None and first >= gold.newest - _DAY > gold.oldest
    return Fingerprint(
        fingerprint=key,
        error_class=one["error_class"],
        sample=one["sample"],
        failures=one["failures"],
        dead=one["dead"],
        share=one["failures"] / burned if burned else 0.0,
        burned_s=one["burned_s"],
        first_seen=first,
        last_seen=one["last"],
        is_new=bool(newly),
        queues=_most(one["queues"]),
        types=_most(one["types"]),
        tenants=_most(one["tenants"]),
        by_day=one["by_day"],
    )


def _most(names: Counter[str]) -> list[str]:
    return [name for name, _ in sorted(names.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMES]]


def _classes(classes: Mapping[str, list[int]]) -> list[ErrorClass]:
    # By their worst day, so that an error of yesterday is not lost behind a month of small ones.
    ranked = sorted(classes.items(), key=lambda item: (-max(item[1]), -sum(item[1]), item[0]))
    found = [ErrorClass(name, sum(by_day), by_day) for name, by_day in ranked[:MOST_CLASSES]]
    rest = [by_day for _, by_day in ranked[MOST_CLASSES:]]
    if rest:
        together = [sum(values) for values in zip(*rest, strict=True)]
        found.append(ErrorClass(OTHER_CLASSES, sum(together), together))
    return found


# --- Tenants and workers -----------------------------------------------------------------------------------------


def tenants(gold: Gold) -> Tenants:
    """Noisy is judged over the window, by the rule that gold has for a day."""
    import pyarrow.compute as pc

    rows = gold.tenants
    if not len(rows):
        return Tenants(0.0, [], 0)
    flagged = rows.append_column("noisy_days", pc.cast(pc.fill_null(rows["noisy"], False), "int64"))
    added = grouped(flagged, ["tenant_id"], ("jobs", "attempts", "failures", "compute_s", "noisy_days"))
    total = sum(row["compute_s"] for row in added)
    fair = 1 / len(added)
    found = []
    for row in added:
        share = row["compute_s"] / total if total else 0.0
        noisy = share >= NOISY_TIMES * fair and share >= NOISY_LEAST
        found.append(Tenant(**row, share=share, noisy=noisy))
    found.sort(key=lambda each: (-each.share, -each.attempts, each.tenant_id))
    return Tenants(fair, found[:MOST], len(found))


def workers(gold: Gold) -> Workers:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = gold.workers
    if not len(rows):
        return Workers([], 0, [])
    slots = pc.max_element_wise(pc.ceil(rows["busy_slots"]), pa.scalar(1.0))
    able = rows.append_column("able_s", pc.multiply(rows["span_s"], slots))
    sums = ("attempts", "succeeded", "lapsed", "busy_s", "span_s", "able_s")
    found = []
    for row in grouped(able, ["worker"], sums, first_at="min", last_at="max"):
        span_s, able_s = row["span_s"], row.pop("able_s")
        unknown = not span_s or _too_short(row)
        found.append(
            WorkerNumbers(
                **row,
                crash_rate=row["lapsed"] / row["attempts"] if row["attempts"] else 0.0,
                busy_share=None if unknown else min(1.0, row["busy_s"] / able_s),
                busy_slots=None if unknown else row["busy_s"] / span_s,
                throughput=row["succeeded"] / span_s if span_s else 0.0,
            )
        )
    found.sort(key=lambda each: (-each.busy_s, each.worker))
    # An attempt counts in the hour of its end, so a long one may give an hour more than it had.
    short = pa.array([row["busy_s"] if _too_short(row) else 0.0 for row in rows.to_pylist()], pa.float64())
    hours = grouped(rows.append_column("short_s", short), ["bucket"], ("busy_s", "short_s"), worker="count_distinct")
    capacity = [
        CapacityBucket(row["bucket"], row["busy_s"] / 3600, row["worker"], row["short_s"] > row["busy_s"] / 4)
        for row in sorted(hours, key=lambda row: row["bucket"])
    ]
    return Workers(found[:MOST], len(found), capacity)


def _too_short(row: Mapping[str, Any]) -> bool:
    """Whether the mean attempt was too short to tell its run from the time until the store was told of its end."""
    ended = row["attempts"] - row["lapsed"]
    return ended > 0 and row["busy_s"] / ended < SHORT_S


# --- Promises ----------------------------------------------------------------------------------------------------

_PROMISE: Final = ("queue", "type", "objective", "threshold_s", "target")


def promises(gold: Gold) -> Promises:
    rows = [row for row in grouped(gold.slo, ["bucket", *_PROMISE], ("good", "total")) if row["total"]]
    if not rows:
        return Promises(gold.objectives, [], [], 0)
    first, last = min(row["bucket"] for row in rows), max(row["bucket"] for row in rows)
    hours = int((last - first) / timedelta(hours=1)) + 1
    width = timedelta(hours=ceil(hours / MOST_TIMES))
    times = [first + number * width for number in range(ceil(hours / (width / timedelta(hours=1))))]
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    newest: dict[tuple[Any, ...], datetime] = {}
    for row in rows:
        key = tuple(row[name] for name in _PROMISE)
        one = kept.setdefault(key, {"all": [0, 0], "day": [0, 0], "times": [[0, 0] for _ in times], "last": first})
        lately = [one["day"]] if row["bucket"] > last - _DAY else []
        for counter in (one["all"], one["times"][int((row["bucket"] - first) / width)], *lately):
            counter[0] += row["good"]
            counter[1] += row["total"]
        one["last"] = max(one["last"], row["bucket"])
        newest[key[:3]] = max(newest.get(key[:3], first), row["bucket"])
    found = [_promise(key, one, one["last"] == newest[key[:3]]) for key, one in kept.items()]
    found.sort(key=lambda each: (-each.burn_rate, each.queue, each.type, each.objective, each.threshold_s))
    return Promises(gold.objectives, times, found[:MOST], len(found))


def _promise(key: tuple[Any, ...], one: Mapping[str, Any], current: bool) -> Promise:
    queue, type, objective, threshold_s, target = key
    good, total = one["all"]

    def burn(counter: list[int]) -> float | None:
        return None if not counter[1] else (1 - counter[0] / counter[1]) / (1 - target)

    lately, kept = burn(one["day"]), good / total >= target
    return Promise(
        queue=queue,
        type=type,
        objective=objective,
        threshold_s=threshold_s,
        target=target,
        good=good,
        total=total,
        attainment=good / total,
        burn_rate=burn(one["all"]) or 0.0,
        burn_rate_last_day=lately,
        kept=kept,
        enough=is_enough(good, total, target),
        burning=kept and (lately or 0.0) > 1 and is_enough(one["day"][0], one["day"][1], target),
        current=current,
        by_time=[None if not all else good / all for good, all in one["times"]],
        enough_by_time=[is_enough(good, all, target) for good, all in one["times"]],
    )


# --- Arrivals ----------------------------------------------------------------------------------------------------


def arrivals(gold: Gold) -> Arrivals:
    """The mean of each hour of the week over the weeks that have it: the first and the last week are seldom whole."""
    rows = grouped(gold.arrivals, ["day", "hour_of_week"], ("arrivals",))
    if not rows:
        return Arrivals(0, [], 0.0, None)
    hours = [_hour(row) for row in rows]
    first, last = min(hours), max(hours)
    weeks = {row["day"] for row in rows}
    sums: Counter[int] = Counter()
    for row in rows:
        sums[row["hour_of_week"]] += row["arrivals"]
    cells = []
    for number in range(168):
        seen = sum(first <= _hour({"day": week, "hour_of_week": number}) <= last for week in weeks)
        mean = sums[number] / seen if seen else 0.0
        cells.append(Cell(number // 24, number % 24, sums[number], seen, mean))
    known = sum(cell.weeks for cell in cells)
    busiest = max((cell for cell in cells if cell.weeks), key=lambda cell: cell.mean, default=None)
    return Arrivals(len(weeks), cells, sum(sums.values()) / known if known else 0.0, busiest)


def _hour(row: Mapping[str, Any]) -> datetime:
    monday: date = row["day"]
    return datetime(monday.year, monday.month, monday.day, tzinfo=UTC) + timedelta(hours=row["hour_of_week"])


# --- Audit -------------------------------------------------------------------------------------------------------


def audit(gold: Gold) -> Audit:
    """The last word of each check, and how often it failed before."""
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    failed: Counter[tuple[str, str]] = Counter()
    batches = set()
    for row in gold.audit.to_pylist():
        key = (row["store_id"], row["check"])
        batches.add((row["store_id"], row["batch"]))
        failed[key] += not row["passed"]
        if key not in latest or row["checked_at"] >= latest[key]["checked_at"]:
            latest[key] = row
    names = ("passed", "expected", "found", "detail", "checked_at")
    checks = [
        CheckState(*key, **{name: row[name] for name in names}, times_failed=failed[key])
        for key, row in sorted(latest.items())
    ]
    checks.sort(key=lambda each: each.passed)
    rejects = next((size.rows for size in gold.sizes if size.name == "silver/rejects"), 0)
    passed = all(each.passed for each in checks) if checks else None
    return Audit(passed, len(batches), checks, rejects, gold.rejected_facts, gold.sizes)

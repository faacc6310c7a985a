"""Lakes whose gold is written down row by row, without Spark: for tests of what is made of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from taskharbor.pipeline import delta
from taskharbor.pipeline.gold_latency import GROWTH
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import TABLES

MONDAY = datetime(2031, 5, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
COUNTS = ("enqueued", "started", "succeeded", "retried", "dead", "lapsed", "other")
SILVER = ("jobs", "rejects")
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def gold_lake(place: Path, rows: Rows, *, batch: int = 1) -> Lake:
    """A lake with these rows in its gold tables, and in silver's jobs and rejects. What a row leaves out is null, its
    store is `store-1`."""
    lake = Lake(place)
    lake.create()
    for name in ("throughput", "latency", "failures", "tenants", "workers", "slo", "arrivals", "audit", *SILVER):
        spec = TABLES[f"silver/{name}" if name in SILVER else f"gold/{name}"]
        blank = dict.fromkeys(spec.schema.fieldNames()) | {"store_id": "store-1"}
        whole = [blank | dict(row) for row in rows.get(name, ())]
        table = pa.Table.from_pylist(whole, schema=pa.schema(delta.open_table(lake, spec).schema().to_arrow()))
        files = delta.write_arrow(table, lake, spec, f"b{batch:09d}-test") if whole else []
        delta.commit(lake, spec, files, store_id="store-1", batch=batch)
    return lake


def histogram(values: Sequence[float]) -> list[dict[str, int]]:
    bins = Counter(0 if each < 0.001 else 1 + math.floor(math.log(each * 1000) / math.log(GROWTH)) for each in values)
    return [{"bin": bin, "count": count} for bin, count in sorted(bins.items())]


def throughput(at: datetime, *, queue: str = "mail", type: str = "send", tenant: str = "a", **counts: int) -> list[Any]:
    """The three rows of a bucket."""
    counts = dict.fromkeys(COUNTS, 0) | counts
    counts["started"] = sum(counts[name] for name in COUNTS[2:])
    starts = {
        "minute": at,
        "hour": at.replace(minute=0),
        "day": at.replace(hour=0, minute=0),
    }
    return [
        {"grain": grain, "bucket": start, "queue": queue, "type": type, "tenant_id": tenant, "day": at.date(), **counts}
        | {"part": f"{at:%H}" if grain == "minute" else "day"}
        for grain, start in starts.items()
    ]


def latency(
    at: datetime, waits: Sequence[float], runs: Sequence[float], *, queue: str = "mail", type: str = "send"
) -> list[Any]:
    measured = {"attempts": len(waits), "queue": queue, "type": type, "day": at.date()}
    for name, values in (("wait", waits), ("run", runs)):
        measured |= {
            f"{name}_sum_s": sum(values),
            f"{name}_max_s": max(values),
            f"{name}_histogram": histogram(values),
        }
    return [
        {"grain": "hour", "bucket": at.replace(minute=0), "part": f"{at:%H}", **measured},
        {"grain": "day", "bucket": at.replace(hour=0, minute=0), "part": "day", **measured},
    ]


def failure(at: datetime, fingerprint: str, failures: int, **more: Any) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint, "error_class": "E", "sample": "E: no", "queue": "mail", "type": "send",
        "failures": failures, "dead": 0, "burned_s": 1.0, "first_seen": at, "last_seen": at, "tenants": ["a"],
        "day": at.date(),
    } | more  # fmt: skip


def tenant(at: datetime, name: str, compute_s: float, **more: Any) -> dict[str, Any]:
    return {
        "tenant_id": name, "jobs": 1, "attempts": 2, "failures": 1, "compute_s": compute_s, "noisy": False,
        "day": at.date(),
    } | more  # fmt: skip


def worker(at: datetime, name: str, busy_s: float, span_s: float, **more: Any) -> dict[str, Any]:
    return {
        "worker": name, "bucket": at, "attempts": 10, "succeeded": 9, "lapsed": 1, "busy_s": busy_s, "span_s": span_s,
        "busy_slots": busy_s / span_s if span_s else 0.0, "first_at": at, "last_at": at + timedelta(seconds=span_s),
        "day": at.date(),
    } | more  # fmt: skip


def promise(at: datetime, good: int, total: int, **more: Any) -> dict[str, Any]:
    return {
        "bucket": at, "queue": "mail", "type": "send", "objective": "wait", "threshold_s": 60.0, "target": 0.9,
        "good": good, "total": total, "day": at.date(),
    } | more  # fmt: skip


def arrived(at: datetime, arrivals: int) -> dict[str, Any]:
    weekday = at.weekday()
    return {
        "queue": "mail", "type": "send", "hour_of_week": weekday * 24 + at.hour, "weekday": weekday, "hour": at.hour,
        "arrivals": arrivals, "day": (at - weekday * DAY).date(),
    }  # fmt: skip


def check(at: datetime, name: str = "no row twice", *, passed: bool = True, batch: int = 1) -> dict[str, Any]:
    return {
        "batch": batch, "run_id": "r", "check": name, "passed": passed, "expected": 0, "found": 0 if passed else 3,
        "detail": "rows", "checked_at": at, "day": at.date(),
    }  # fmt: skip


def dead_job(at: datetime, id: str = "j") -> dict[str, Any]:
    return {"job_id": id, "status": "dlq", "last_at": at, "ended_at": at, "state": "dead", "day": at.date()}


def rejected(at: datetime, source: str) -> dict[str, Any]:
    return {"source": source, "row": "{}", "reason": "no", "rejected_at": at, "day": at.date()}


def small(at: datetime = MONDAY) -> dict[str, list[Any]]:
    """A little of everything."""
    return {
        "throughput": [*throughput(at, enqueued=12, succeeded=9, retried=2, dead=1)],
        "latency": latency(at, [0.5] * 11 + [90.0], [0.2] * 12),
        "failures": [failure(at, "f1", 2), failure(at, "f2", 1, dead=1)],
        "tenants": [tenant(at, "a", 2.0), tenant(at, "b", 0.4)],
        "workers": [worker(at, "w-1", 1800.0, 3600.0)],
        "slo": [promise(at, 11, 12), promise(at, 9, 12, objective="success", threshold_s=0.0)],
        "arrivals": [arrived(at, 12)],
        "audit": [check(at)],
    }

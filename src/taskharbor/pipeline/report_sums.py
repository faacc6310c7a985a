"""From gold to numbers: what came in, what became of it, and how long it took. Pure functions of Arrow tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline.gold_latency import GROWTH, SHARES
from taskharbor.pipeline.report_numbers import (
    MOST,
    Bucket,
    Counts,
    LatencyBucket,
    QueueNumbers,
    Spread,
    Totals,
    TypeNumbers,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from taskharbor.pipeline.report_gold import Gold

COUNTS: Final = ("enqueued", "started", "succeeded", "retried", "lapsed", "dead", "other")
MOST_BUCKETS: Final = 5000
_STEPS: Final = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


def grouped(rows: pa.Table, keys: Sequence[str], sums: Iterable[str] = (), **more: str) -> list[dict[str, Any]]:
    """Rows added up: `sums` by their own names, and `name="min"` and the like for others."""
    wanted = [*((name, "sum") for name in sums), *more.items()]
    found = rows.group_by(list(keys), use_threads=False).aggregate(wanted)
    return found.rename_columns([*keys, *(name for name, _ in wanted)]).to_pylist()


# --- Throughput --------------------------------------------------------------------------------------------------


def throughput(gold: Gold) -> list[Bucket]:
    """Every bucket from the first to the last, those in which nothing happened too."""
    found = {row["bucket"]: _counts(row) for row in grouped(gold.throughput, ["bucket"], COUNTS)}
    if not found:
        return []
    step = _STEPS[gold.grain]
    at, last = min(found), max(found)
    # A clock that was far off once must not make a million empty bars.
    if (last - at) / step > MOST_BUCKETS:
        return [Bucket(each, found[each]) for each in sorted(found)]
    filled = []
    while at <= last:
        filled.append(Bucket(at, found.get(at, Counts())))
        at += step
    return filled


def _counts(row: Mapping[str, Any]) -> Counts:
    return Counts(**{name: row[name] for name in COUNTS})


def totals(gold: Gold, spreads: Mapping[str, Spread | None], compute_s: float) -> Totals:
    (row,) = grouped(gold.throughput, [], COUNTS) if len(gold.throughput) else [dict.fromkeys(COUNTS, 0)]
    counts = _counts(row)
    share = counts.burned / counts.started if counts.started else 0.0
    # A lake of an older version did not count the deaths of crash loops: whoever is dead has died.
    deaths = max(counts.dead, gold.still_dead)
    return Totals(counts, counts.burned, share, compute_s, spreads["wait"], spreads["run"], deaths, gold.still_dead)


# --- Latency -----------------------------------------------------------------------------------------------------


class Latency:
    """The histograms of the window, bin by bin, to be added up by whatever is asked for."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._bins = {measure: _unfolded(rows, measure) for measure in ("wait", "run")}

    def by(self, *keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        """For each key: `attempts`, `compute_s`, and the spreads `wait` and `run`."""
        sums = grouped(
            self._rows, keys, ("attempts", "wait_sum_s", "run_sum_s"), wait_max_s="max", run_max_s="max"
        ) if len(self._rows) else []  # fmt: skip
        histograms = {measure: self._histograms(measure, keys) for measure in self._bins}
        found = {}
        for row in sums:
            key = tuple(row[name] for name in keys)
            found[key] = {"attempts": row["attempts"], "compute_s": row["run_sum_s"]} | {
                measure: spread(
                    histograms[measure][key], row["attempts"], row[f"{measure}_sum_s"], row[f"{measure}_max_s"]
                )
                for measure in self._bins
            }
        return found

    def _histograms(self, measure: str, keys: Sequence[str]) -> dict[tuple[Any, ...], list[tuple[int, int]]]:
        found: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        for row in grouped(self._bins[measure], [*keys, "bin"], ("count",)):
            found[tuple(row[name] for name in keys)].append((row["bin"], row["count"]))
        return found


def _unfolded(rows: pa.Table, measure: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = rows.combine_chunks()
    column = whole[f"{measure}_histogram"]
    each = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    owner = pc.list_parent_indices(each)
    entries = pc.list_flatten(each)
    keys = whole.select(["bucket", "queue", "type"]).take(owner)
    bins = pa.table({"bin": pc.struct_field(entries, "bin"), "count": pc.struct_field(entries, "count")})
    return pa.table({**{name: keys[name] for name in keys.column_names}, **{n: bins[n] for n in bins.column_names}})


def spread(histogram: Iterable[tuple[int, int]], count: int, total_s: float, most_s: float) -> Spread:
    """The percentiles of a log-spaced histogram, as `gold_latency.percentile` reads them off."""
    bins = sorted(histogram)

    def at(share: float) -> float:
        wanted, seen = ceil(count * share), 0
        for each, many in bins:
            seen += many
            if seen >= wanted:
                return min(0.0 if each == 0 else 0.001 * GROWTH ** (each - 0.5), most_s)
        return most_s

    found = {f"{name}_s": at(share) for name, share in SHARES.items()}
    return Spread(**found, max_s=most_s, mean_s=total_s / count if count else 0.0)


def latency_buckets(latency: Latency) -> list[LatencyBucket]:
    return [
        LatencyBucket(key[0], row["attempts"], row["wait"], row["run"])
        for key, row in sorted(latency.by("bucket").items())
    ]


def queues(gold: Gold, latency: Latency) -> list[QueueNumbers]:
    timed = latency.by("queue")
    found = []
    for row in grouped(gold.throughput, ["queue"], COUNTS):
        times = timed.get((row["queue"],), {})
        found.append(QueueNumbers(row["queue"], _counts(row), times.get("wait"), times.get("run")))
    return sorted(found, key=lambda each: (-each.counts.started, each.queue))[:MOST]


def types(latency: Latency) -> tuple[list[TypeNumbers], int]:
    """By the seconds that they took in all: that is where the time goes."""
    timed = latency.by("queue", "type")
    in_all = sum(row["compute_s"] for row in timed.values())
    found = [
        TypeNumbers(
            key[0],
            key[1],
            row["attempts"],
            row["compute_s"],
            row["compute_s"] / in_all if in_all else 0.0,
            row["wait"],
            row["run"],
        )
        for key, row in timed.items()
    ]
    found.sort(key=lambda each: (-each.compute_s, each.queue, each.type))
    return found[:MOST], len(found)


def window_of(buckets: Sequence[Bucket], grain: str) -> tuple[datetime | None, datetime | None]:
    """From the start of the first bucket to the end of the last."""
    return (buckets[0].at, buckets[-1].at + _STEPS[grain]) if buckets else (None, None)

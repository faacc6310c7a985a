"""Gold: what people look at. Each table adds the new rows of a batch to the days that they touch, and replaces these.

A table is one query over what a batch brought and the rows that are to be added to, if there are any: it adds rows that
belong together, old and new, and derives shares and percentiles. Everything is native expressions, in the text of one
query: so it is one call to Java for a table, where columns made in Python are hundreds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from taskharbor.pipeline import lake_schemas as tables
from taskharbor.pipeline.delta import is_small
from taskharbor.pipeline.lake_schemas import TableSpec
from taskharbor.pipeline.silver import listed
from taskharbor.pipeline.slo import DEFAULT, Objective

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class News:
    """What a batch brought to silver: rows of one store. `forget` it when all has been made of it."""

    store_id: str
    attempts: DataFrame
    jobs: DataFrame
    """Those whose making became known with this batch: each job once, when it first ended."""
    objectives: tuple[Objective, ...] = DEFAULT
    small: bool = field(init=False)
    views: dict[str, str] = field(init=False)
    """What queries call the two."""

    def __post_init__(self) -> None:
        frames = {"attempts": self.attempts, "jobs": self.jobs}
        object.__setattr__(self, "small", is_small(self.attempts.sparkSession))
        object.__setattr__(self, "views", {name: _view(frame) for name, frame in frames.items()})

    def forget(self) -> None:
        for view in self.views.values():
            self.attempts.sparkSession.catalog.dropTempView(view)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query is made for: the names of what it reads, and what it depends on besides."""

    attempts: str
    jobs: str
    old: str | None
    """The rows that are to be added to; None where there are none, and what is new is all there is."""
    store_id: str
    """As SQL."""
    objectives: tuple[Objective, ...]
    small: bool

    def both(self, first: str, second: str) -> str:
        """The rows of two queries; in one partition if each is in one: what is grouped then need not be moved."""
        hint = "/*+ COALESCE(1) */ " if self.small else ""
        return f"(SELECT {hint}* FROM ({first} UNION ALL {second}))"


@dataclass(frozen=True, slots=True)
class GoldTable:
    spec: TableSpec
    query: Callable[[Asked], str]
    touches: str = "ended"
    """Where a batch touches it: `ended` when attempts ended, `both` there and when jobs were made, `weeks` of that."""


def merged(table: GoldTable, news: News, old: DataFrame | None) -> DataFrame:
    """The rows of the touched days as they are to be now."""
    spark = news.attempts.sparkSession
    view = None if old is None else _view(old)
    asked = Asked(news.views["attempts"], news.views["jobs"], view, text(news.store_id), news.objectives, news.small)
    try:
        return spark.sql(f"SELECT {', '.join(table.spec.schema.fieldNames())} FROM ({table.query(asked)})")
    finally:
        if view is not None:
            spark.catalog.dropTempView(view)


def _view(frame: DataFrame) -> str:
    name = f"taskharbor_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    return name


def text(value: str) -> str:
    """A text as SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sums(names: Sequence[str]) -> str:
    return ", ".join(f"sum({name}) AS {name}" for name in names)


# Times cut to whole minutes and hours are grouped as the numbers that they are.
_MICROS: Final = {"minute": 60_000_000, "hour": 3_600_000_000}
WHOLE_DAY: Final = "day"
"""The part of a day that holds the rows that are not of one hour."""


def number_of(grain: str, time: str) -> str:
    """Minutes or hours since 1970."""
    return f"unix_micros({time}) DIV {_MICROS[grain]}"


def time_of(grain: str, number: str) -> str:
    return f"timestamp_micros({number} * {_MICROS[grain]})"


def part_of(bucket: str) -> str:
    """The part of a row of the finest grain: these lie apart by their hours."""
    return f"lpad(CAST(hour({bucket}) AS string), 2, '0')"


# --- throughput --------------------------------------------------------------------------------------------------

_COUNTS: Final = ("enqueued", "started", "succeeded", "retried", "dead", "lapsed", "other")
_NAMED: Final = ("succeeded", "retried", "dead", "lapsed")


def throughput(asked: Asked) -> str:
    # A lost worker after which the job was dead is a death, and counts as that alone. `started` counts in the minute
    # of the end as well: an attempt is known when it is over.
    events = asked.both(
        f"""SELECT {number_of("minute", "finished_at")} AS minute, queue, type, tenant_id,
          CASE WHEN outcome = 'lapsed' AND status = 'dlq' THEN 'dead' ELSE outcome END AS ended_as
        FROM {asked.attempts}""",
        f"SELECT {number_of('minute', 'created_at')}, queue, type, tenant_id, '' FROM {asked.jobs}",
    )
    outcomes = ", ".join(f"count_if(ended_as = '{name}') AS {name}" for name in _NAMED)
    minutes = f"""SELECT minute, queue, type, tenant_id, count_if(ended_as = '') AS enqueued,
          count_if(ended_as <> '') AS started, {outcomes}, count_if(ended_as NOT IN {listed(("", *_NAMED))}) AS other
        FROM {events} GROUP BY minute, queue, type, tenant_id"""
    bucket, counts = time_of("minute", "minute"), ", ".join(_COUNTS)
    key = "store_id, grain, bucket, queue, type, tenant_id, day, part"
    if asked.old is not None:
        rows = asked.both(f"SELECT {key}, {counts} FROM {asked.old}", _at_grains(asked, minutes, (1, 60, 1440)))
        return f"SELECT {key}, {sums(_COUNTS)} FROM {rows} GROUP BY {key}"
    # What was grouped by the minute needs no second look.
    coarse = (
        f"SELECT {key}, {sums(_COUNTS)} FROM ({_at_grains(asked, 'SELECT * FROM minutes', (60, 1440))}) GROUP BY {key}"
    )
    return f"""WITH minutes AS ({minutes})
        SELECT {asked.store_id} AS store_id, 'minute' AS grain, {bucket} AS bucket, queue, type, tenant_id,
          to_date({bucket}) AS day, {part_of(bucket)} AS part, {counts} FROM minutes UNION ALL {coarse}"""


def _at_grains(asked: Asked, minutes: str, sizes: Sequence[int]) -> str:
    """Rows by the minute, once for each grain, which is given by its minutes."""
    bucket = time_of("minute", "(minute - minute % size)")
    return f"""SELECT {asked.store_id} AS store_id, CASE size WHEN 1 THEN 'minute' WHEN 60 THEN 'hour' ELSE 'day' END
          AS grain, {bucket} AS bucket, queue, type, tenant_id, to_date({bucket}) AS day,
          CASE size WHEN 1 THEN {part_of(bucket)} ELSE '{WHOLE_DAY}' END AS part, {", ".join(_COUNTS)}
        FROM (SELECT *, explode(array({", ".join(map(str, sizes))})) AS size FROM ({minutes}))"""


# --- tenants -----------------------------------------------------------------------------------------------------

NOISY_TIMES: Final = 3.0
NOISY_LEAST: Final = 0.1
_USED: Final = ("jobs", "attempts", "failures", "compute_s")


def tenants(asked: Asked) -> str:
    # A job that was sent back has not ended.
    rows = asked.both(
        f"""SELECT tenant_id, day, 0L AS jobs, 1L AS attempts, CAST(burned AS bigint) AS failures, ran_s AS compute_s
        FROM {asked.attempts}""",
        f"SELECT tenant_id, to_date(last_at), 1L, 0L, 0L, 0.0D FROM {asked.jobs}",
    )
    added = f"""SELECT {asked.store_id} AS store_id, tenant_id, day, {sums(_USED)}
        FROM {rows} GROUP BY tenant_id, day"""
    if asked.old is not None:
        key = "store_id, tenant_id, day"
        rows = asked.both(f"SELECT {key}, {', '.join(_USED)} FROM {asked.old}", added)
        added = f"SELECT {key}, {sums(_USED)} FROM {rows} GROUP BY {key}"
    return f"""SELECT *, share >= {NOISY_TIMES}D * fair_share AND share >= {NOISY_LEAST}D AS noisy FROM (
          SELECT *, CASE WHEN total > 0 THEN compute_s / total ELSE 0.0D END AS share, 1.0D / tenants AS fair_share
          FROM (SELECT *, sum(compute_s) OVER (PARTITION BY store_id, day) AS total,
                  count(*) OVER (PARTITION BY store_id, day) AS tenants FROM ({added})))"""


# --- arrivals ----------------------------------------------------------------------------------------------------


def arrivals(asked: Asked) -> str:
    hour, key = time_of("hour", "at_hour"), "store_id, queue, type, hour_of_week, weekday, hour, day"
    rows = f"""SELECT {asked.store_id} AS store_id, queue, type, weekday({hour}) * 24 + hour({hour}) AS hour_of_week,
          weekday({hour}) AS weekday, hour({hour}) AS hour, to_date(date_trunc('week', {hour})) AS day, arrivals
        FROM (SELECT queue, type, {number_of("hour", "created_at")} AS at_hour, count(*) AS arrivals
              FROM {asked.jobs} GROUP BY 1, 2, 3)"""
    if asked.old is None:
        return rows
    both = asked.both(f"SELECT {key}, arrivals FROM {asked.old}", rows)
    return f"SELECT {key}, sum(arrivals) AS arrivals FROM {both} GROUP BY {key}"


def gold_tables() -> tuple[GoldTable, ...]:
    """All but `audit`, which the checks write."""
    from taskharbor.pipeline import gold_failures, gold_latency, gold_workers

    return (
        GoldTable(tables.GOLD_THROUGHPUT, throughput, "both"),
        GoldTable(tables.GOLD_LATENCY, gold_latency.latency),
        GoldTable(tables.GOLD_FAILURES, gold_failures.failures),
        GoldTable(tables.GOLD_TENANTS, tenants),
        GoldTable(tables.GOLD_WORKERS, gold_workers.workers),
        GoldTable(tables.GOLD_SLO, gold_workers.slo),
        GoldTable(tables.GOLD_ARRIVALS, arrivals, "weeks"),
    )

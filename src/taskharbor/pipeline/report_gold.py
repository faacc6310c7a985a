"""What a report is made from, read off the lake without Spark.

Gold is small, whatever the size of the lake: counts by the hour and by the day. delta-rs and Arrow read it in a moment,
where a Spark session alone would take some ten seconds to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import TaskHarborError
from taskharbor.pipeline.lake import Lake, LakeError
from taskharbor.pipeline.report_numbers import TableSize
from taskharbor.pipeline.schemas import LAKE_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

MINUTES_UP_TO: Final = timedelta(hours=3)
HOURS_UP_TO: Final = timedelta(days=10)
CHECKS_OF: Final = timedelta(days=30)
"""Every batch leaves its checks: no more than these are read."""
_TABLES: Final = ("throughput", "latency", "failures", "tenants", "workers", "slo", "arrivals", "audit")
_LATENCY: Final = (
    *("bucket", "queue", "type", "attempts", "wait_sum_s", "wait_max_s", "wait_histogram"),
    *("run_sum_s", "run_max_s", "run_histogram"),
)


class NoGold(LakeError):
    """The lake has no gold yet."""


@dataclass(frozen=True)
class Gold:
    """The rows of the gold tables that fall into the window, and what is known of the lake around them."""

    lake: str
    version: int
    stores: list[str]
    since: datetime | None
    grain: str
    """Of `throughput`; `latency` has days where that is a day, else hours."""
    throughput: pa.Table
    latency: pa.Table
    failures: pa.Table
    first_failures: dict[str, datetime]
    """When each fingerprint was first seen, in the whole lake."""
    tenants: pa.Table
    workers: pa.Table
    slo: pa.Table
    arrivals: pa.Table
    audit: pa.Table
    oldest: datetime | None
    newest: datetime | None
    """The first and the last hour of the whole lake."""
    objectives: str
    still_dead: int = 0
    """Jobs that died in the window and that nothing was heard of since."""
    rejected_facts: int = 0
    last_run: dict[str, Any] = field(default_factory=dict)
    under_way: bool = False
    sizes: list[TableSize] = field(default_factory=list)
    store: dict[str, Any] = field(default_factory=dict)
    """What the store says of the lag: `rows` and `seconds`, or `problem`."""


def read_gold(place: str | Path, *, since: datetime | None = None, url: str | None = None) -> Gold:
    """The gold of a lake from `since` on. Raises NotALake, LakeTooNew, LakeCorrupt and NoGold.

    With the URL of a store, the report also says how far the lake is behind it. A store that cannot be reached, or
    that the lake knows nothing of, is no reason to have no report.
    """
    lake = Lake(place)
    lake.check()
    missing = [name for name in _TABLES if not (lake.path(f"gold/{name}") / "_delta_log").exists()]
    if missing:
        raise NoGold(f"the lake {lake.root} has no gold yet: run taskharbor pipeline run first")
    if lake.version() < LAKE_VERSION:
        raise LakeError(f"the lake {lake.root} is of an older version: taskharbor pipeline run brings it up to date")
    tables = {name: _Table(lake, name) for name in _TABLES}
    day = None if since is None else since.date()
    audit = tables["audit"].latest(day)
    stores = sorted(set(audit["store_id"].to_pylist()))
    if not stores:
        raise NoGold(
            f"the lake {lake.root} has no gold yet, because nothing has come in: run taskharbor pipeline run first, "
            "once jobs have ended"
        )
    hours = tables["throughput"].read("hour", day)
    hours = _from(hours, since, timedelta(hours=1))
    grain = _grain(hours)
    oldest, newest = tables["throughput"].reach()
    return Gold(
        lake=str(lake.root),
        version=lake.version(),
        stores=stores,
        since=since,
        grain=grain,
        throughput=hours if grain == "hour" else _from(tables["throughput"].read(grain, day), since, _WIDTHS[grain]),
        latency=_from(
            tables["latency"].read("day" if grain == "day" else "hour", day, _LATENCY),
            since,
            _WIDTHS["day" if grain == "day" else "hour"],
        ),
        failures=tables["failures"].read(None, day),
        first_failures=tables["failures"].first_seen(),
        tenants=tables["tenants"].read(None, day),
        workers=_from(tables["workers"].read(None, day), since, timedelta(hours=1)),
        slo=_from(tables["slo"].read(None, day), since, timedelta(hours=1)),
        arrivals=tables["arrivals"].read(None, None if day is None else day - timedelta(days=day.weekday())),
        audit=audit,
        oldest=oldest,
        newest=newest,
        objectives=_objectives(lake),
        still_dead=_still_dead(lake, _start(since, _WIDTHS[grain])),
        rejected_facts=_rejected_facts(lake),
        last_run=lake.read_json("last_run.json"),
        under_way=_under_way(tables, stores),
        sizes=_sizes(lake),
        store={} if url is None else _ask_store(url, lake, stores),
    )


_WIDTHS: Final = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


class _Table:
    """One gold table, as it was when it was opened."""

    def __init__(self, lake: Lake, name: str) -> None:
        from deltalake import DeltaTable

        self.table = DeltaTable(str(lake.path(f"gold/{name}")))

    def read(self, grain: str | None = None, day: date | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one grain, from a day on. Files of earlier days are not opened."""
        import pyarrow.dataset as ds

        wanted = None
        if day is not None:
            wanted = ds.field("day") >= day
        if grain is not None:
            fits = ds.field("grain") == grain
            wanted = fits if wanted is None else wanted & fits
        return self.table.to_pyarrow_dataset().to_table(columns=list(columns) if columns else None, filter=wanted)

    def days(self) -> tuple[date, date] | None:
        """The first and the last day that there is a file of."""
        import pyarrow as pa
        import pyarrow.compute as pc

        actions = pa.table(self.table.get_add_actions(flatten=True))
        if not len(actions):
            return None
        ends = pc.min_max(actions["partition.day"]).as_py()
        return ends["min"], ends["max"]

    def latest(self, day: date | None) -> pa.Table:
        """The rows from a day on, and those of the last day in any case."""
        ends = self.days()
        if ends is None:
            return self.read()
        first, last = ends
        return self.read(None, min(last, max(day or first, last - CHECKS_OF)))

    def reach(self) -> tuple[datetime | None, datetime | None]:
        """The first and the last hour, from the files of the first and the last day."""
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        ends = self.days()
        if ends is None:
            return None, None
        inside = ds.field("day").isin(list(ends)) & (ds.field("grain") == "hour")
        hours = pc.min_max(self.table.to_pyarrow_dataset().to_table(columns=["bucket"], filter=inside)["bucket"])
        return hours["min"].as_py(), hours["max"].as_py()

    def first_seen(self) -> dict[str, datetime]:
        rows = self.table.to_pyarrow_dataset().to_table(columns=["fingerprint", "first_seen"])
        first = rows.group_by("fingerprint").aggregate([("first_seen", "min")])
        return dict(zip(first["fingerprint"].to_pylist(), first["first_seen_min"].to_pylist(), strict=True))

    def batch_of(self, store_id: str) -> int:
        from taskharbor.pipeline.delta import app_id

        return self.table.transaction_version(app_id(store_id)) or 0


def _from(rows: pa.Table, since: datetime | None, width: timedelta) -> pa.Table:
    """The rows whose bucket ends after `since`: the one that it falls into counts as a whole."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if since is None:
        return rows
    first = pa.scalar(since - width, pa.timestamp("us", "UTC"))
    return rows.filter(pc.greater(rows["bucket"], first))


def _start(since: datetime | None, width: timedelta) -> datetime | None:
    """The start of the bucket that `since` falls into."""
    if since is None:
        return None
    midnight = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (since - midnight) // width * width


def _still_dead(lake: Lake, first: datetime | None) -> int:
    """Silver keeps one row for each job, and those that are dead apart: few, and only counted."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    dead = ds.field("state") == "dead"
    if first is not None:
        ended = ds.field("ended_at") >= pa.scalar(first, pa.timestamp("us", "UTC"))
        dead = dead & (ds.field("day") >= first.date()) & ended
    return _count(lake, "silver/jobs", dead)


def _rejected_facts(lake: Lake) -> int:
    """Rows that a load could not use are no facts, and say nothing about these numbers."""
    import pyarrow.dataset as ds

    return _count(lake, "silver/rejects", ds.field("source") == "history")


def _count(lake: Lake, name: str, wanted: Any) -> int:
    from deltalake import DeltaTable

    if not (lake.path(name) / "_delta_log").exists():
        return 0
    return int(DeltaTable(str(lake.path(name))).to_pyarrow_dataset().count_rows(filter=wanted))


def _grain(hours: pa.Table) -> str:
    """The widest buckets that still show something move."""
    import pyarrow.compute as pc

    if not len(hours):
        return "hour"
    ends = pc.min_max(hours["bucket"]).as_py()
    reach = ends["max"] - ends["min"]
    return "minute" if reach < MINUTES_UP_TO else "hour" if reach <= HOURS_UP_TO else "day"


def _under_way(tables: dict[str, _Table], stores: Sequence[str]) -> bool:
    """Each table takes a batch in with a commit of its own, `audit` last."""
    return any(len({table.batch_of(store) for table in tables.values()}) > 1 for store in stores)


def _objectives(lake: Lake) -> str:
    own = lake.home / "slo.toml"
    if own.exists():
        return f"what {own} says"
    return f"the defaults, unless runs were given others with --slo; your own belong in {own}"


def _sizes(lake: Lake) -> list[TableSize]:
    from taskharbor.pipeline.lake_schemas import TABLES
    from taskharbor.pipeline.status import _table

    return [TableSize(**_table(lake, name)) for name in TABLES]


def _ask_store(url: str, lake: Lake, stores: Sequence[str]) -> dict[str, Any]:
    from taskharbor.pipeline.status import lag
    from taskharbor.pipeline.store import open_store

    try:
        with open_store(url) as store:
            if store.store_id not in stores:
                return {"problem": f"the lake knows nothing of the store {store.store_id}"}
            return lag(lake, store)
    except TaskHarborError as error:
        return {"problem": str(error)}

"""How a lake stands: how far it is behind its store, what the last run did, how large its tables are."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import TaskHarborError
from taskharbor.pipeline import bronze, delta
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import GOLD_AUDIT, TABLES
from taskharbor.pipeline.store import open_store

if TYPE_CHECKING:
    from taskharbor.pipeline.store import PipelineStore

MOST_COUNTED: Final = 1_000_000
"""Rows of the feed behind this are not counted: then the lag is `at least` so much."""


def status(url: str | None, place: str | Path) -> dict[str, Any]:
    """Everything, as JSON has it. Without a URL, or when the store cannot be reached, nothing is said of the lag."""
    lake = Lake(place)
    lake.check()
    found: dict[str, Any] = {
        "lake": str(lake.root),
        "version": lake.version(),
        "running": _running(lake),
        "last_run": lake.read_json("last_run.json") or None,
        "tables": [_table(lake, name) for name in TABLES],
        "store": None,
        "lag": None,
        "lag_problem": None,
    }
    if url is not None:
        try:
            with open_store(url) as store:
                found["store"] = store.store_id
                found["lag"] = lag(lake, store)
        except TaskHarborError as error:
            found["lag_problem"] = str(error)
    return found


def lag(lake: Lake, store: PipelineStore) -> dict[str, Any]:
    """How many rows of the feed are not in bronze yet, and how long ago the first of them was written."""
    last = bronze.last_batch(lake, store.store_id)
    through = delta.batch_of(lake, GOLD_AUDIT, store.store_id)
    frontier = store.frontier()
    after = last.upto if last else None
    rows, oldest = 0, None
    if store.order_of(frontier) > store.order_of(after):
        for batch in store.read_history(after, frontier, ["at"]):
            if oldest is None and len(batch):
                oldest = batch.column(0)[0].as_py()
            rows += len(batch)
            if rows >= MOST_COUNTED:
                break
    seconds = max(0.0, (datetime.now(UTC) - oldest).total_seconds()) if oldest else 0.0
    return {
        "rows": rows,
        "at_least": rows >= MOST_COUNTED,
        "seconds": round(seconds, 3),
        "last_batch": last.number if last else 0,
        "pending_batch": last.number if last and through < last.number else None,
        "cursor": after,
    }


def _running(lake: Lake) -> dict[str, Any] | None:
    held = lake.read_json("lock")
    return {name: held.get(name) for name in ("host", "pid", "since", "beat")} if held else None


def _table(lake: Lake, name: str) -> dict[str, Any]:
    spec = TABLES[name]
    if not (lake.path(spec) / "_delta_log").exists():
        return {"name": name, "version": None, "rows": 0, "files": 0, "bytes": 0}
    table = delta.open_table(lake, spec)
    files = delta.files_of(table, spec)
    return {
        "name": name,
        "version": table.version(),
        "rows": sum(each.rows for each in files),
        "files": len(files),
        "bytes": sum(each.size for each in files),
    }

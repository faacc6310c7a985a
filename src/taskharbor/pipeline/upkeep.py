"""Keeping a lake in shape: small files made into larger ones, and files that nobody needs any more removed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Any, Final

from taskharbor.pipeline import delta
from taskharbor.pipeline.bronze import stores_of, tag_of
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY, GOLD_AUDIT, TABLES

EVERY_BATCHES: Final = 20
"""A run looks after the lake each time so many batches have come."""
SMALL_FILES: Final = 8
"""A partition of more files than this is compacted."""
KEPT_HOURS: Final = 168
"""How long files stay that are no longer part of a table: readers of an older version, and time travel, need them."""

_ENDS: Final = (BRONZE_HISTORY, GOLD_AUDIT)
"""Where a batch comes in, and what has it last."""


@dataclass
class Upkeep:
    compacted: dict[str, int] = field(default_factory=dict)
    """Files that were made into fewer, by table."""
    removed: dict[str, int] = field(default_factory=dict)
    waits_for: list[str] = field(default_factory=list)
    """Stores with a batch that is half-way: nothing was done, because finishing that takes its files as they are."""


def under_way(lake: Lake) -> list[str]:
    """The stores whose last batch is in bronze and not through."""
    last, through = ({id: delta.batch_of(lake, spec, id) for id in stores_of(lake)} for spec in _ENDS)
    return [id for id in last if last[id] > through[id]]


def upkeep(lake: Lake, *, kept_hours: int = KEPT_HOURS, small_files: int = SMALL_FILES) -> Upkeep:
    """Compact and vacuum every table, unless a batch is half-way, of whatever store. The caller holds the lock."""
    done = Upkeep(waits_for=under_way(lake))
    if done.waits_for:
        return done
    for spec in TABLES.values():
        table = delta.open_table(lake, spec)
        crowded: dict[tuple[tuple[str, str | None], ...], int] = {}
        for each in delta.files_of(table, spec):
            crowded[each.partition] = crowded.get(each.partition, 0) + 1
        for partition, count in crowded.items():
            if count > small_files:
                filters: list[Any] = [(name, "=", value or "") for name, value in partition]
                metrics = table.optimize.compact(partition_filters=filters)
                done.compacted[spec.name] = done.compacted.get(spec.name, 0) + int(metrics["numFilesRemoved"])
        gone = table.vacuum(
            retention_hours=kept_hours, dry_run=False, full=True, enforce_retention_duration=kept_hours >= KEPT_HOURS
        )
        table.cleanup_metadata()
        if gone:
            done.removed[spec.name] = len(gone)
        _remove_empty(lake, spec.name)
    return done


def sweep(lake: Lake, store_id: str, batches: tuple[int, ...]) -> int:
    """Remove what killed runs wrote for these batches and never committed."""
    removed = 0
    for spec in TABLES.values():
        starts = tuple(f"{tag_of(store_id, number)}-" for number in batches)
        found = [each for each in lake.path(spec).iterdir() if each.name.startswith(starts)]
        if not found:
            continue
        kept = {each.path.partition("/")[0] for each in delta.files_of(delta.open_table(lake, spec), spec)}
        for each in found:
            if each.name not in kept:
                shutil.rmtree(each, ignore_errors=True)
                removed += 1
    return removed


def _remove_empty(lake: Lake, name: str) -> None:
    """Directories that vacuum left without a file."""
    for path in sorted(lake.path(name).glob("b*/**/"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()

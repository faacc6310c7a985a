"""What retention must leave alone: jobs that are not in the lake yet, when there is a lake."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from taskharbor.core.contract import Driver
from taskharbor.core.errors import TaskHarborError

log = logging.getLogger("taskharbor.worker")

LAKE: Final = "TASKHARBOR_LAKE"
MARK: Final = Path("_taskharbor", "archived.json")
"""In a lake: by store, how far it vouches for what it has."""


class Vouched(NamedTuple):
    """What a lake has for sure: jobs that ended before a moment, as far as all their rows lie at or before a cursor of
    the feed. The moment alone would not do: a job that was imported since may have ended long before it."""

    before: datetime
    upto: str


def kept_by_lake(driver: Driver) -> Callable[[], Vouched | None] | None:
    """For the leader's `vouched`: None where no lake is configured, and so nothing to wait for."""
    lake = os.environ.get(LAKE)
    if not lake:
        return None
    told: list[str] = []

    def vouched() -> Vouched | None:
        found = archived_until(lake, identity(driver))
        if isinstance(found, str):
            if not told:
                told.append(found)
                log.warning("%s", found)
            return None
        told.clear()
        return found

    return vouched


def identity(driver: Driver) -> Collection[str]:
    """The names that a store goes by: its cursors begin with them."""
    return driver.history(None, 1).cursor.split(":")


def archived_until(lake: str, names: Collection[str]) -> Vouched | str | None:
    """What the lake vouches for of this store; None while that is nothing, or, where somebody should know, why it is
    nothing."""
    if "://" in lake and not lake.startswith("file://"):
        return None  # out of reach from here: whoever archives prunes as well
    path = Path(lake.removeprefix("file://")) / MARK
    try:
        marks: dict[str, Any] = json.loads(path.read_text("utf-8"))
        mark = next((mark for store, mark in marks.items() if store in names), None)
        if isinstance(mark, str):
            datetime.fromisoformat(mark)
            return (
                f"{path} was written by an older TaskHarbor and names a time alone, so nothing is pruned: "
                "the next `taskharbor pipeline archive` writes it anew"
            )
        return None if mark is None else Vouched(datetime.fromisoformat(mark["before"]), str(mark["upto"]))
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError, KeyError, TypeError, OSError) as error:
        raise TaskHarborError(f"{path} cannot be read, so nothing is pruned: {error!r}") from error

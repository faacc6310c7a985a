"""What retention must leave alone: jobs that are not in the lake yet, when there is a lake."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Final

from taskharbor.core.contract import Driver
from taskharbor.core.errors import TaskHarborError

LAKE: Final = "TASKHARBOR_LAKE"
MARK: Final = Path("_taskharbor", "archived.json")
"""In a lake: by store, the moment before which everything that ended is safely there."""


def kept_by_lake(driver: Driver) -> Callable[[], datetime | None] | None:
    """For the leader's `keep_from`: None where no lake is configured, and so nothing to wait for."""
    lake = os.environ.get(LAKE)
    if not lake:
        return None
    return lambda: archived_until(lake, identity(driver))


def identity(driver: Driver) -> Collection[str]:
    """The names that a store goes by: its cursors begin with them."""
    return driver.history(None, 1).cursor.split(":")


def archived_until(lake: str, names: Collection[str]) -> datetime | None:
    """The moment before which the lake vouches for everything of this store; None while it vouches for nothing."""
    if "://" in lake and not lake.startswith("file://"):
        return None  # out of reach from here: whoever archives prunes as well
    path = Path(lake.removeprefix("file://")) / MARK
    try:
        marks: dict[str, str] = json.loads(path.read_text("utf-8"))
        moments = {store: datetime.fromisoformat(text) for store, text in marks.items()}
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError, OSError) as error:
        raise TaskHarborError(f"{path} cannot be read, so nothing is pruned: {error}") from error
    return next((moment for store, moment in moments.items() if store in names), None)

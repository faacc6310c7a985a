"""Looking at a JSON store from outside, for the tests of its driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taskharbor.drivers.jsonfile import JsonDriver
from taskharbor.testing.helpers import everything


def contents(directory: Path) -> tuple[Any, ...]:
    """All that a store knows, as a driver sees it that has just opened it."""
    with JsonDriver(directory) as driver:
        rows = driver.history().rows
        attempts = [driver.attempts(id) for id in sorted(everything(driver))]
        fleet = (driver.queues(), driver.workers(), driver.leaders())
        return everything(driver), rows, attempts, *fleet


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


def journal_of(directory: Path) -> Path:
    (path,) = directory.glob("journal-*.jsonl")
    return path

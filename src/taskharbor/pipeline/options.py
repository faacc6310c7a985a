"""The options of a read, checked: what is wrong with one is said before anything is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from taskharbor.core.errors import InvalidInput
from taskharbor.drivers.opening import parse_url, redacted
from taskharbor.pipeline.store import EVERYTHING, Selection

TABLES: Final = ("jobs", "attempts", "dlq", "workers", "history")
_KNOWN: Final = (
    "url", "table", "queue", "type", "tenant", "status", "since", "until", "partitions", "maxrowsperbatch", "startat",
)  # fmt: skip
_AGO: Final = re.compile(r"(\d+)([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True, repr=False)
class ReadOptions:
    """What a reader was asked for. Printing it never shows a password."""

    url: str
    table: str
    selection: Selection = EVERYTHING
    partitions: int = 1
    max_rows_per_batch: int | None = None
    start_at: str = "beginning"

    def __repr__(self) -> str:
        return f"ReadOptions({redacted(self.url)!r}, {self.table!r}, {self.selection!r}, {self.partitions})"


def read_options(given: Mapping[str, str], *, stream: bool = False) -> ReadOptions:
    """Options as Spark has them, whose names know no case."""
    options = {name.lower(): value for name, value in given.items() if value is not None}
    unknown = sorted(name for name in options if name not in _KNOWN and "." not in name and name != "path")
    if unknown:
        raise InvalidInput(f"unknown option {unknown[0]!r}: known are {', '.join(_KNOWN)}")
    url = options.get("url") or os.environ.get("TASKHARBOR_URL", "")
    if not url:
        raise InvalidInput('the option "url" is missing: .option("url", "sqlite:///jobs.db"), or set TASKHARBOR_URL')
    parse_url(url)
    table = options.get("table", "history" if stream else "").lower()
    if table not in TABLES:
        raise InvalidInput(f'the option "table" must be one of {", ".join(TABLES)}, got {table!r}')
    if stream and table != "history":
        raise InvalidInput(f'only the table history can be read as a stream, not {table}: .option("table", "history")')
    chosen = {name: options.get(name) or None for name in ("queue", "type", "tenant", "status")}
    since, until = (_moment(name, options.get(name)) for name in ("since", "until"))
    selection = Selection(**chosen, since=since, until=until)
    if table == "history" and selection != EVERYTHING:
        raise InvalidInput("the table history is read whole: select from the DataFrame with .where(…)")
    start_at = options.get("startat", "beginning")
    rows = options.get("maxrowsperbatch")
    return ReadOptions(
        url=url,
        table=table,
        selection=selection,
        partitions=_number("partitions", options.get("partitions", str(os.cpu_count() or 1)), 10_000),
        max_rows_per_batch=None if rows is None else _number("maxRowsPerBatch", rows, 10**12),
        start_at=start_at,
    )


def _number(name: str, text: str, most: int) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) <= most:
        raise InvalidInput(f"{name} must be a whole number from 1 to {most:,}, got {text!r}")
    return int(text)


def _moment(name: str, text: str | None) -> datetime | None:
    """A time in ISO 8601 with its offset, or how long ago: 30m, 12h, 7d."""
    if not text:
        return None
    if ago := _AGO.fullmatch(text.strip().lower()):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(f"{name} must be a time such as 2031-05-01T09:00:00Z, or 7d ago, got {text!r}") from None
    if found.tzinfo is None:
        raise InvalidInput(f"{name} has no offset: write {found.isoformat()}Z for UTC, or +02:00 and so on")
    return found.astimezone(UTC)

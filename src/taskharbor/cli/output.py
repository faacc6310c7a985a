"""What verbs print: tables for people, one JSON document for programs, a progress bar for whoever waits.

A terminal gets tables drawn by rich where it is installed. Anything else gets plain ones, which no width cuts short.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TextIO

from taskharbor.cli.table import table as plain_table
from taskharbor.core.headlines import headline

# What a terminal would obey instead of show. Payloads and errors come from anywhere.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BREAK: Final = re.compile(r"[\t\n\u2028\u2029]")
_LONG: Final = ("last error", "error", "found", "queues")
"""Columns that go on below when the terminal is too narrow. All others stay whole, ids above all."""
_CUT: Final = "last error"
"""The one of them that is cut instead, so that a list of jobs has one line for each: `jobs show` has the whole text."""
_LEAST_OF_LONG: Final = 12
_STYLES: Final = {
    "done": "green",
    "succeeded": "green",
    "ok": "green",
    "alive": "green",
    "running": "cyan",
    "claimed": "cyan",
    "inflight": "cyan",
    "retried": "yellow",
    "lapsed": "yellow",
    "warning": "yellow",
    "paused": "yellow",
    "dlq": "red",
    "dead": "red",
    "problem": "bold red",
}


def cleaned(text: str) -> str:
    """The text with nothing in it that would move a cursor or hide a word."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def in_one_line(text: str) -> str:
    """The text cleaned, and with nothing in it that would begin another line or column: a name must not forge a row."""
    return _BREAK.sub(lambda found: found[0].encode("unicode_escape").decode(), cleaned(text))


def shortened(text: str, longest: int = 60) -> str:
    """The line of an error that says most, cut if need be. Never used for ids."""
    line = in_one_line(headline(text))
    return line if len(line) <= longest else line[: longest - 1] + "…"


@dataclass
class Table:
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    empty: str = ""
    """What to say instead of a table without rows."""


@dataclass
class Screen:
    """Parts to show one below the other: text or tables."""

    parts: list[str | Table] = field(default_factory=list)

    def plain(self) -> str:
        return "\n\n".join(part if isinstance(part, str) else _plain(part) for part in self.parts)


def show(*parts: str | Table) -> None:
    """Print for people."""
    screen = Screen(list(parts))
    console = _console()
    if console is None or _is_too_wide(screen, console.width):
        print(screen.plain())
        return
    for number, part in enumerate(parts):
        if number:
            print()
        # Text goes out as it is: where the terminal wraps it, a cursor or a command can still be copied whole.
        print(part) if isinstance(part, str) else console.print(_rich(part, console.width))


def renderable(screen: Screen, width: int) -> Any:
    """The screen as rich draws it in so many columns; plain where they are too few for the tables, and never folded."""
    from rich.console import Group
    from rich.text import Text

    if _is_too_wide(screen, width):
        return Text(screen.plain(), no_wrap=True, overflow="ellipsis")
    drawn: list[Any] = []
    for part in screen.parts:
        if drawn:
            drawn.append(Text())
        drawn.append(Text(part) if isinstance(part, str) else _rich(part, width))
    return Group(*drawn)


def _is_too_wide(screen: Screen, width: int) -> bool:
    return any(isinstance(part, Table) and _least_width(part) > width for part in screen.parts)


def has_rich() -> bool:
    """Whether to draw with rich: it is installed, and somebody looks."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return False
    from importlib.util import find_spec

    return find_spec("rich") is not None


def _console() -> Any:
    if not has_rich():
        return None
    from rich.console import Console

    return Console(highlight=False)  # minds NO_COLOR by itself


def _texts(table: Table) -> list[list[object]]:
    return [[in_one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows]


def _least_width(table: Table) -> int:
    """The columns that a table needs when it is drawn with lines."""
    columns = zip(table.headings, *_texts(table), strict=True)
    widths = [
        _LEAST_OF_LONG if column[0] in _LONG else max(len("" if cell is None else str(cell)) for cell in column)
        for column in columns
    ]
    return sum(widths) + 3 * len(widths)


def _plain(table: Table) -> str:
    if not table.rows and table.empty:
        return table.empty
    head = f"{table.title}\n" if table.title else ""
    return head + plain_table(table.headings, _texts(table))


def _rich(table: Table, width: int) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    if not table.rows and table.empty:
        return Text(table.empty)
    drawn = RichTable(
        title=Text(table.title, style="bold") if table.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    columns = list(zip(*table.rows, strict=True)) or [() for _ in table.headings]
    for heading, column in zip(table.headings, columns, strict=True):
        numbers = bool(column) and all(isinstance(cell, int | float) for cell in column)
        cut = heading == _CUT
        drawn.add_column(
            heading,
            justify="right" if numbers else "left",
            overflow="ellipsis" if cut else "fold",
            no_wrap=cut or heading not in _LONG,
            # Exactly what the others leave over, or rich would take from ids as well.
            max_width=_LEAST_OF_LONG + width - _least_width(table) if cut else None,
        )
    for row in _texts(table):
        cells = ["" if cell is None else str(cell) for cell in row]
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    return drawn


def print_json(data: Any) -> None:
    """One document."""
    try:
        text = json.dumps(data, indent=2)
    except RecursionError:  # a payload nested so deeply that only the plain form can be written
        text = json.dumps(data)
    print(text)


def print_each(arguments: argparse.Namespace, key: str, done: Mapping[str, Mapping[str, Any]], line: str) -> int:
    """What was done to each name: with --json as a list under `key`, else as a line with the name in it."""
    if arguments.json:
        print_json({key: list(done.values())})
    else:
        for name in done:
            print(line.format(in_one_line(name)))
    return 0


class ProgressBar:
    """How far bulk work has come, on standard error, and only when that is a terminal."""

    def __init__(self, what: str, total: int | None = None, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._done = 0

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if self._shown and now - self._drawn_at >= 0.1:
            self._drawn_at = now
            self._draw(now)

    def _draw(self, now: float) -> None:
        speed = self._done / max(now - self._began, 0.001)
        text = f"{self._what} {self._done:,}"
        if self._total:
            filled = min(30, 30 * self._done // self._total)
            text = f"{self._what} [{'#' * filled}{'.' * (30 - filled)}] {self._done:,} of {self._total:,}"
        self._stream.write(f"\r{text}, {speed:,.0f} a second\x1b[K")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._shown and self._drawn_at:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

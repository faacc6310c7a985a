"""What `stats` shows people, in as much room as there is."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from taskharbor.cli.form import span
from taskharbor.cli.output import Screen, Table, in_one_line

_HEAD: Final = 2
"""The headings and the line below them."""
_LEAST_OF_NAME: Final = 8


def size_of_terminal() -> os.terminal_size:
    return shutil.get_terminal_size()


def screen(stats: Mapping[str, Any], width: int | None = None) -> Screen:
    """The queues, and below them what holds for the whole store. Given a width, states that no job is in are left out
    if all of them do not fit."""
    return Screen([_table(stats, width), "\n".join(_summary(stats))])


def fitted(stats: Mapping[str, Any], width: int, height: int) -> Screen:
    """The same where nothing can be scrolled: no line is longer, and there are no more lines. What is below the queues
    is whole; of those come as many as there is room for."""
    below = "\n".join(piece for line in _summary(stats) for piece in textwrap.wrap(line, width, break_on_hyphens=False))
    room = height - below.count("\n") - 1 - _HEAD - 1
    if room < 1:
        return Screen([below])
    table = _table(stats, width, room)
    if (over := _width(table) - width) > 0:
        names = [str(row[0]) for row in table.rows]
        longest = max(max(map(len, names)) - over, _LEAST_OF_NAME)
        table.rows = [(_cut(name, longest), *row[1:]) for name, row in zip(names, table.rows, strict=True)]
    if _width(table) <= width:
        return Screen([table, below])
    lines = Screen([table]).plain().splitlines()
    return Screen(["\n".join(_cut(line, width) for line in lines), below])


def _width(table: Table) -> int:
    """The columns that it needs without lines drawn; a sentence that stands for an empty one may go on below."""
    return max(map(len, Screen([table]).plain().splitlines())) if table.rows else 0


def _table(stats: Mapping[str, Any], width: int | None = None, room: int | None = None) -> Table:
    counts: dict[str, int] = stats["counts"]
    states = [state for state in counts if state != "scheduled"]
    table = Table(("queue", "tap", *states, "oldest ready"), _rows(stats, states, room), empty="no jobs yet")
    if width is None or _width(table) <= width:
        return table
    said = [state for state in states if counts[state]]
    return Table(("queue", "tap", *said, "oldest ready"), _rows(stats, said, room), empty="no jobs yet")


def _rows(stats: Mapping[str, Any], states: Sequence[str], room: int | None) -> list[tuple[object, ...]]:
    queues = stats["queues"]
    all_of_them = ("all", "", *(stats["counts"][state] for state in states), "")
    if room is None or len(queues) + (len(queues) > 1) <= room:
        rows = [_row(queue, states) for queue in queues]
        return [*rows, all_of_them] if len(rows) > 1 else rows
    shown = room - 2
    if shown < 1:
        return [all_of_them]
    left = queues[shown:]
    more = (f"{len(left)} more", "", *(sum(queue["counts"][state] for queue in left) for state in states), "")
    return [*(_row(queue, states) for queue in queues[:shown]), more, all_of_them]


def _row(queue: Mapping[str, Any], states: Sequence[str]) -> tuple[object, ...]:
    return (
        queue["name"],
        "paused" if queue["paused"] else "open",
        *(queue["counts"][state] for state in states),
        "" if queue["oldest_ready_s"] is None else span(queue["oldest_ready_s"]),
    )


def _summary(stats: Mapping[str, Any]) -> list[str]:
    recent, workers = stats["recent"], stats["workers"]
    silent = f", {workers['silent']} silent" if workers["silent"] else ""
    leaders = ", ".join(f"{each['holder']} (epoch {each['epoch']})" for each in stats["leaders"]) or "none"
    ran = f"{recent['attempts']:,} attempts, {recent['per_second']:,.1f} a second, {recent['failure_rate']:.1%} failed"
    lines = [
        f"scheduled for later: {stats['counts']['scheduled']:,}",
        f"last {span(recent['window_s'])}: {ran}",
        in_one_line(f"workers: {workers['alive']} alive with {workers['slots']} slots{silent}; leader: {leaders}"),
    ]
    return [*lines, stats["moved"]] if stats["moved"] else lines


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"

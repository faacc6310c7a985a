"""`taskharbor stats`: what is going on."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.values import positive_duration
from taskharbor.core.errors import InvalidInput

if TYPE_CHECKING:
    from taskharbor.core.answers import Glance
    from taskharbor.core.contract import Driver

WINDOW: Final = timedelta(minutes=5)
RECENT_ROWS: Final = 5_000
"""So many rows of the feed are looked at, at most."""
_SHARE: Final = 0.2
"""The part of the time that --watch may spend asking: a large store is asked less often."""
_ATTEMPTS: Final = ("succeeded", "retried", "dead", "lapsed", "cancelled")
_FAILURES: Final = ("retried", "dead", "lapsed")

_DESCRIPTION: Final = """\
Show jobs by queue and state, how long the oldest has been waiting, what was run in the last minutes and how much of
it failed, the workers, and their leader. With --watch again and again, until Ctrl-C; as JSON, one line each time.

examples:
  taskharbor stats
  taskharbor stats --watch
  taskharbor stats --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "stats", help="what is going on", description=_DESCRIPTION)
    parser.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=positive_duration,
        default=timedelta(seconds=1),
        metavar="TIME",
        help="with --watch: how often (default: 1s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import print_json, show
    from taskharbor.cli.stats_screen import screen, size_of_terminal
    from taskharbor.cli.store import opened

    if "interval" in arguments.given and not arguments.watch:
        raise InvalidInput("--interval goes with --watch: without it the numbers are shown once")
    with opened(arguments, waits=arguments.watch) as driver:
        if arguments.watch:
            return _watch(driver, arguments)
        stats = collect(driver)
    if arguments.json:
        print_json(stats)
    else:
        here = {**stats, "moved": None}  # which standard error has said
        show(*screen(here, size_of_terminal().columns if sys.stdout.isatty() else None).parts)
    return 0


def collect(driver: Driver) -> dict[str, Any]:
    """Everything at one time, as JSON has it."""
    from taskharbor.cli import peek
    from taskharbor.core.carrying import departure_of
    from taskharbor.core.forms import is_alive, iso

    now = driver.now()
    departure = departure_of(driver)
    counts = driver.counts()
    paused = {queue.name for queue in driver.queues() if queue.paused}
    oldest = peek.oldest_due(driver, now)
    workers = driver.workers()
    alive = [worker for worker in workers if is_alive(worker, now)]
    leaders = [leader for leader in driver.leaders() if leader.until > now]
    names = sorted(counts.queues.keys() | paused)
    return {
        "at": iso(now),
        "counts": {**counts, "scheduled": counts.scheduled},
        "queues": [
            {
                "name": name,
                "paused": name in paused,
                "counts": counts.queues.get(name, dict.fromkeys(counts, 0)),
                "oldest_ready_s": round((now - oldest[name]).total_seconds(), 3) if name in oldest else None,
            }
            for name in names
        ],
        "recent": rates(driver.latest(limit=RECENT_ROWS).rows, now),
        "workers": {"alive": len(alive), "silent": len(workers) - len(alive), "slots": sum(w.slots for w in alive)},
        "leaders": [{"name": each.name, "holder": each.holder, "epoch": each.epoch} for each in leaders],
        "moved": None if departure is None else departure.said,
    }


def rates(rows: Sequence[Glance], now: datetime) -> dict[str, Any]:
    """Attempts a second, and the part of them that failed, over the window or as much of it as is known."""
    inside = [row for row in rows if now - row.at <= WINDOW]
    attempts = [row.outcome for row in inside if row.outcome in _ATTEMPTS]
    # So many happened that only the last of them were read: the window is as long as they reach back.
    cut = len(rows) >= RECENT_ROWS and len(inside) == len(rows)
    window = max((now - min(row.at for row in inside)).total_seconds(), 0.001) if cut else WINDOW.total_seconds()
    failed = sum(outcome in _FAILURES for outcome in attempts)
    return {
        "window_s": round(window, 3),
        "attempts": len(attempts),
        "failed": failed,
        "per_second": round(len(attempts) / window, 3),
        "failure_rate": round(failed / len(attempts), 4) if attempts else 0.0,
    }


def _watch(driver: Driver, arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import has_rich

    interval = arguments.interval.total_seconds()
    try:
        if arguments.json:
            _repeat(driver, interval, lambda stats: print(json.dumps(stats), flush=True))
        elif has_rich():
            _watch_with_rich(driver, interval)
        else:
            _repeat(driver, interval, _redraw)
    except (KeyboardInterrupt, _TerminalGoneError):
        pass  # how one ends it
    return 0


class _TerminalGoneError(Exception):
    """Nobody looks any more. rich, which asks each time whether there is a terminal, would draw nothing for ever."""


def _repeat(driver: Driver, interval: float, draw: Any) -> Any:
    while True:
        began = time.monotonic()
        stats = collect(driver)
        took = time.monotonic() - began
        draw(stats)
        time.sleep(max(interval - took, took * (1 / _SHARE - 1), 0.01))


def _redraw(stats: dict[str, Any]) -> None:
    from taskharbor.cli.stats_screen import fitted, screen, size_of_terminal

    if not sys.stdout.isatty():
        print(f"{stats['at']}\n\n{screen(stats).plain()}\n", flush=True)
        return
    size = size_of_terminal()
    beside = 4  # the time, two empty lines, and the one that the cursor is left on
    print(f"\x1b[H\x1b[J{stats['at']}\n\n{fitted(stats, size.columns, size.lines - beside).plain()}\n", flush=True)


def _watch_with_rich(driver: Driver, interval: float) -> None:
    from rich.live import Live

    from taskharbor.cli.output import renderable
    from taskharbor.cli.stats_screen import fitted

    with Live(auto_refresh=False, screen=True) as live:

        def draw(stats: dict[str, Any]) -> None:
            if not sys.stdout.isatty():
                raise _TerminalGoneError
            width, height = live.console.size
            live.update(renderable(fitted(stats, width, height), width), refresh=True)

        _repeat(driver, interval, draw)

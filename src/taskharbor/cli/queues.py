"""`taskharbor queues`: what waits where, and the tap of each queue."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_group, add_named_verb, add_verb, nearest

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver

_DESCRIPTION: Final = """\
See what waits where, and close or open the tap of a queue.

examples:
  taskharbor queues list
  taskharbor queues pause mail
"""
_LIST: Final = """\
List the queues with their jobs by state.

examples:
  taskharbor queues list
  taskharbor queues list --json
"""
_PAUSE: Final = """\
Stop handing out the jobs of queues. Running jobs go on, and new ones may still be enqueued.

examples:
  taskharbor queues pause mail
"""
_RESUME: Final = """\
Hand out the jobs of queues again.

examples:
  taskharbor queues resume mail
"""


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "queues", help="what waits where; pause and resume", description=_DESCRIPTION)
    parser = add_verb(group, "list", help="list the queues with their jobs by state", description=_LIST)
    parser.set_defaults(run=run_list)
    add_named_verb(
        group,
        "pause",
        help="stop handing out the jobs of queues",
        description=_PAUSE,
        run=lambda arguments: run_tap(arguments, paused=True),
    )
    add_named_verb(
        group,
        "resume",
        help="hand them out again",
        description=_RESUME,
        run=lambda arguments: run_tap(arguments, paused=False),
    )


def run_list(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import Table, print_json, show
    from taskharbor.cli.store import opened

    with opened(arguments) as driver:
        counts = driver.counts()
        paused = {queue.name: queue.paused for queue in driver.queues()}
    names = sorted(counts.queues.keys() | paused.keys())
    empty = dict.fromkeys(counts, 0)
    if arguments.json:
        queues = [
            {"name": name, "paused": paused.get(name, False), "counts": counts.queues.get(name, empty)}
            for name in names
        ]
        print_json({"queues": queues})
        return 0
    rows = [
        (name, "paused" if paused.get(name) else "open", *counts.queues.get(name, empty).values()) for name in names
    ]
    show(Table(("queue", "tap", *empty), rows, empty="no queues yet: one comes with its first job"))
    return 0


def run_tap(arguments: argparse.Namespace, *, paused: bool) -> int:
    from taskharbor.cli.output import cleaned, print_each
    from taskharbor.cli.store import opened

    with opened(arguments, create=True) as driver:
        known = _known(driver)
        for name in arguments.names:
            (driver.pause if paused else driver.resume)(name)
    for name in arguments.names:
        if name not in known:
            near = nearest(name, known)
            meant = f": did you mean {near}?" if near else ""
            print(f"taskharbor: nothing uses a queue {cleaned(name)} yet{cleaned(meant)}", file=sys.stderr)
    done = {name: {"name": name, "paused": paused} for name in arguments.names}
    return print_each(arguments, "queues", done, f"{{}} is {'paused' if paused else 'open again'}")


def _known(driver: Driver) -> set[str]:
    """The queues that a job, a worker, a schedule or an earlier pause knows."""
    known = {queue.name for queue in driver.queues()} | driver.counts().queues.keys()
    known.update(queue for worker in driver.workers() for queue in worker.queues)
    return known | {schedule.queue for schedule in driver.schedules()}

"""`taskharbor queues`: what waits where, and the tap of each queue. What governs them is in `queue_rules`."""

from __future__ import annotations

import argparse
from typing import Final

from taskharbor.cli import known, queue_rules
from taskharbor.cli.options import Verbs, add_group, add_named_verb, add_verb

_DESCRIPTION: Final = """\
See what waits where, close or open the tap of a queue, limit what runs, and let tenants share.

examples:
  taskharbor queues list
  taskharbor queues pause mail
  taskharbor queues limit reports --concurrency 4
  taskharbor queues fair mail --weight acme=3
"""
_LIST: Final = """\
List the queues with their jobs by state, their limits and shares, and the limits of types and tenants.

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
Hand out the jobs of queues again. One that has no jobs and no rules, such as a name that was mistyped, is not listed
any more.

examples:
  taskharbor queues resume mail
"""


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "queues", help="what waits where; pause, limit, share", description=_DESCRIPTION)
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
    queue_rules.add_to(group)


def run_list(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import Table, print_json, show
    from taskharbor.cli.store import opened
    from taskharbor.core.forms import is_as_any, limit_data
    from taskharbor.core.model import QueueSettings

    with opened(arguments) as driver:
        counts = driver.counts()
        settings = {queue.name: queue for queue in driver.queues() if not is_as_any(queue)}
        limits = driver.get_limits()
    limited = {limit.name for limit in limits if limit.scope == "queue"}
    names = sorted(counts.queues.keys() | settings.keys() | limited)
    empty = dict.fromkeys(counts, 0)
    others = [limit for limit in limits if limit.scope != "queue"]
    plain = QueueSettings("")
    if arguments.json:
        queues = [
            {
                "name": name,
                "paused": settings.get(name, plain).paused,
                "fair": settings.get(name, plain).fair,
                "weights": dict(settings.get(name, plain).weights),
                "limits": [limit_data(limit) for limit in queue_rules.of_queue(limits, name)],
                "counts": counts.queues.get(name, empty),
            }
            for name in names
        ]
        print_json({"queues": queues, "limits": [limit_data(limit) for limit in others]})
        return 0
    rows = [
        (
            name,
            "paused" if settings.get(name, plain).paused else "open",
            *counts.queues.get(name, empty).values(),
            queue_rules.rules_text(settings.get(name, plain), queue_rules.of_queue(limits, name)),
        )
        for name in names
    ]
    show(Table(("queue", "tap", *empty, "rules"), rows, empty="no queues yet: one comes with its first job"))
    if others:
        show(
            Table(
                ("limit for", "name", "rules"),
                [(limit.scope, limit.name, queue_rules.limit_text(limit)) for limit in others],
                empty="",
            )
        )
    return 0


def run_tap(arguments: argparse.Namespace, *, paused: bool) -> int:
    from taskharbor.cli.output import print_each
    from taskharbor.cli.store import opened

    with opened(arguments, create=True) as driver:
        doubts = known.doubts(driver, "queue", arguments.names)
        for name in arguments.names:
            (driver.pause if paused else driver.resume)(name)
    known.say(doubts)
    done = {name: {"name": name, "paused": paused} for name in arguments.names}
    return print_each(arguments, "queues", done, f"{{}} is {'paused' if paused else 'open again'}")

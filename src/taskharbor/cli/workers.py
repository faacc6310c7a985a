"""`taskharbor workers`: who runs jobs, and who leads."""

from __future__ import annotations

import argparse
from typing import Final

from taskharbor.cli.options import Verbs, add_verb

_DESCRIPTION: Final = """\
List the workers with their last sign of life, and who leads them. With --json, `leaders` has the last one of all too;
`current` says whether it still leads, and `until` is null when it has resigned.

examples:
  taskharbor workers
  taskharbor workers --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "workers", help="who runs jobs, and who leads", description=_DESCRIPTION)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.form import ago
    from taskharbor.cli.output import Table, in_one_line, print_json, show
    from taskharbor.cli.store import opened
    from taskharbor.core.forms import is_alive, leader_data, worker_data

    with opened(arguments) as driver:
        now = driver.now()
        workers = driver.workers()
        leaders = driver.leaders()
    if arguments.json:
        print_json(
            {
                "workers": [worker_data(worker, now) for worker in workers],
                "leaders": [leader_data(leader, now) for leader in leaders],
            }
        )
        return 0
    rows = [
        (
            worker.id,
            "alive" if is_alive(worker, now) else "silent",
            ago(worker.last_heartbeat, now),
            worker.hostname,
            worker.pid,
            ",".join(worker.queues),
            worker.slots,
            worker.version,
            ago(worker.started_at, now),
        )
        for worker in workers
    ]
    headings = ("worker", "state", "heard of", "host", "pid", "queues", "slots", "version", "started")
    show(Table(headings, rows, empty="no workers: start one with `taskharbor -A module:harbor worker`"))
    for leader in leaders:
        if leader.until > now:
            ends = ago(leader.until, now)
            show(in_one_line(f"leader ({leader.name}): {leader.holder}, epoch {leader.epoch}, its term ends {ends}"))
    return 0

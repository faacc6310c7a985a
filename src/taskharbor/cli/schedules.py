"""`taskharbor schedules`: what runs again and again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_group, add_named_verb, add_verb
from taskharbor.core.errors import ScheduleNotFound

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver

_DESCRIPTION: Final = """\
See what runs again and again; pause, resume, run it at once, or remove it.

examples:
  taskharbor schedules list
  taskharbor schedules run nightly-report
"""
_LIST: Final = """\
List the schedules with their last and next run.

examples:
  taskharbor schedules list
  taskharbor schedules list --json
"""
_PAUSE: Final = """\
Pause schedules: their ticks pass without a job, also after a restart of the workers, until somebody resumes them.

examples:
  taskharbor schedules pause nightly-report
"""
_RESUME: Final = """\
Resume schedules. Ticks that passed meanwhile are not made up for.

examples:
  taskharbor schedules resume nightly-report
"""
_RUN: Final = """\
Enqueue one job of each schedule at once, beside its ticks, paused or not.

examples:
  taskharbor schedules run nightly-report
"""


_REMOVE: Final = """\
Remove schedules from the store, for good. Jobs that they enqueued stay. A schedule that is still in the code of an
application comes back when a worker of it starts: take it out there first, or pause it instead.

examples:
  taskharbor schedules remove nightly-report
"""


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "schedules", help="what runs again and again", description=_DESCRIPTION)
    parser = add_verb(group, "list", help="list them with their last and next run", description=_LIST)
    parser.set_defaults(run=run_list)
    add_named_verb(
        group,
        "pause",
        help="let their ticks pass without a job",
        description=_PAUSE,
        run=lambda arguments: run_pause(arguments, paused=True),
    )
    add_named_verb(
        group,
        "resume",
        help="let them run again",
        description=_RESUME,
        run=lambda arguments: run_pause(arguments, paused=False),
    )
    add_named_verb(group, "run", help="enqueue one job of each at once", description=_RUN, run=run_now)
    add_named_verb(group, "remove", help="remove them from the store", description=_REMOVE, run=run_remove)


def run_list(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.form import ago, data_of
    from taskharbor.cli.output import Table, print_json, show
    from taskharbor.cli.store import opened
    from taskharbor.core.forms import schedule_data

    with opened(arguments) as driver:
        now = driver.now()
        schedules = driver.schedules()
    if arguments.json:
        listed = []
        for schedule in schedules:
            payload, encoding = data_of(schedule.payload)
            listed.append(schedule_data(schedule) | {"payload": payload, "payload_encoding": encoding})
        print_json({"schedules": listed})
        return 0
    rows = [
        (
            schedule.name,
            schedule.spec,
            schedule.timezone,
            schedule.type,
            schedule.queue,
            "paused" if schedule.paused else "on",
            ago(schedule.last_run_at, now) or "never",
            "" if schedule.paused else ago(schedule.next_run_at, now),
            schedule.last_job_id,
        )
        for schedule in schedules
    ]
    headings = ("name", "when", "time zone", "type", "queue", "state", "last run", "next run", "last job")
    show(Table(headings, rows, empty="no schedules: a worker brings those of its application (@harbor.periodic)"))
    return 0


def run_pause(arguments: argparse.Namespace, *, paused: bool) -> int:
    from taskharbor.cli.output import print_each
    from taskharbor.cli.store import opened

    with opened(arguments, writes=True) as driver:
        _find(driver, arguments.names)
        for name in arguments.names:
            driver.pause_schedule(name, paused=paused)
    done = {name: {"name": name, "paused": paused} for name in arguments.names}
    return print_each(arguments, "schedules", done, f"{{}} is {'paused' if paused else 'on again'}")


def run_now(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import in_one_line, print_json
    from taskharbor.cli.store import opened
    from taskharbor.worker.scheduler import run_now as enqueue_now

    with opened(arguments, writes=True) as driver:
        _find(driver, arguments.names)
        now = driver.now()
        ids = {name: enqueue_now(driver, name, now) for name in arguments.names}
    if arguments.json:
        print_json({"jobs": [{"schedule": name, "id": id} for name, id in ids.items()]})
    else:
        for name, id in ids.items():
            print(in_one_line(f"{id} enqueued for {name}"))
    return 0


def run_remove(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import print_each
    from taskharbor.cli.store import opened

    with opened(arguments, writes=True) as driver:
        _find(driver, arguments.names)
        done = {name: {"name": name, "removed": driver.remove_schedule(name)} for name in arguments.names}
    return print_each(arguments, "schedules", done, "{} is removed")


def _find(driver: Driver, names: Sequence[str]) -> None:
    """See that all are there before any is touched."""
    from taskharbor.cli.options import nearest

    known = [schedule.name for schedule in driver.schedules()]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            cure = f"did you mean {near!r}?" if near else "`taskharbor schedules list` shows those there are"
            raise ScheduleNotFound(f"there is no schedule {name!r}: {cure}")

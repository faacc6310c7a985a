"""What `worker --drain` says in the end: what was done, and what is left."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from taskharbor.app import Harbor
    from taskharbor.core.contract import Driver
    from taskharbor.worker.tally import Tally


def document_alone(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """While a drain runs that is to print one JSON document, handlers print elsewhere."""
    from taskharbor.cli.streams import standard_output_elsewhere

    return standard_output_elsewhere() if arguments.drain and arguments.json else nullcontext()


def left_over(driver: Driver, harbor: Harbor, queues: Sequence[str]) -> dict[str, int]:
    """Jobs that are ready in these queues, those among them that are due, with no handler here, and jobs that are
    leased."""
    from taskharbor.cli.peek import due

    counts = driver.counts().queues
    left, inflight = (
        sum(counts[queue][state] for queue in queues if queue in counts) for state in ("ready", "inflight")
    )
    waiting = due(driver, driver.now()) if left else {}
    unhandled = sum(count for (queue, type), count in waiting.items() if queue in queues and type not in harbor.tasks)
    return {"left": left, "unhandled": unhandled, "inflight": inflight}


def left_over_at(harbor: Harbor, queues: Sequence[str]) -> dict[str, int]:
    """The same for a parent, which has closed its harbor for the time that its processes work."""
    from taskharbor.drivers.opening import open_driver

    with closing(open_driver(harbor.url)) as driver:
        return left_over(driver, harbor, queues)


def total_of(reports: Sequence[bytes]) -> Tally:
    """What all of them did. One that was killed has told nothing."""
    from taskharbor.worker.tally import Tally

    told = [json.loads(report) for report in reports]
    return Tally(**{field.name: sum(each[field.name] for each in told) for field in fields(Tally)})


def tell_parent(ear: int, tally: Tally) -> None:
    """What one of several processes did."""
    with suppress(OSError):  # the parent is gone, and nobody asks any more
        os.write(ear, json.dumps(asdict(tally)).encode())


def print_counts(arguments: argparse.Namespace, tally: Tally, left: dict[str, int]) -> None:
    from taskharbor.cli.output import Table, print_json, show

    found: dict[str, Any] = {**asdict(tally), **left}
    if arguments.json:
        print_json({"counts": found})
    else:
        show(Table(tuple(found), [tuple(found.values())]))

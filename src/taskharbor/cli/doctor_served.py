"""Jobs that are due, and that no living worker will ever take: their queue is served by none, or their type by none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from taskharbor.cli import peek
from taskharbor.cli.findings import Finding, ok, warning
from taskharbor.core.fleet import ANY_TYPE, Worker
from taskharbor.core.forms import is_alive

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver

MOST_NAMED: Final = 5
_NO_WORKER: Final = (
    "start a worker for it (taskharbor -A module:harbor worker -q {queue}), or see whether it is misspelled"
)
_NO_HANDLER: Final = "deploy a worker whose application has the task {type}, or cancel the jobs if the name was a slip"


def served(driver: Driver) -> Iterator[Finding]:
    """Where there are no workers at all, the check of the workers says so."""
    now = driver.now()
    workers = driver.workers()
    paused = {queue.name for queue in driver.queues() if queue.paused}
    due = {place: count for place, count in peek.due(driver, now).items() if place[0] not in paused}
    if not due or not workers:
        return
    found = list(_unserved(due, [worker for worker in workers if is_alive(worker, now)]))
    yield from found[:MOST_NAMED]
    if len(found) > MOST_NAMED:
        yield warning("served", f"and {len(found) - MOST_NAMED} queues and types more", found[-1].cure)
    if not found:
        yield ok("served", "a living worker serves every queue and type that has jobs due")


def _unserved(due: dict[tuple[str, str], int], alive: list[Worker]) -> Iterator[Finding]:
    by_queue: Counter[str] = Counter()
    for (queue, _), count in due.items():
        by_queue[queue] += count
    for queue, count in sorted(by_queue.items()):
        there = [worker for worker in alive if queue in worker.queues]
        if not there:
            said = f"queue {queue}: {count:,} {_jobs(count)} due, and no living worker serves it"
            yield warning("served", said, _NO_WORKER.format(queue=queue))
            continue
        for (place, type), waiting in sorted(due.items()):
            if place == queue and not any(handles(worker, type) for worker in there):
                said = (
                    f"type {type} in queue {queue}: {waiting:,} {_jobs(waiting)} due, and no living worker handles it"
                )
                yield warning("served", said, _NO_HANDLER.format(type=type))


def handles(worker: Worker, type: str) -> bool:
    """A worker that does not say what it handles may handle anything."""
    types = worker.meta.get("types", ANY_TYPE)
    return types == ANY_TYPE or type in types.split(",")


def _jobs(count: int) -> str:
    return "job" if count == 1 else "jobs"

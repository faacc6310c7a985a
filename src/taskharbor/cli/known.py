"""Whether anything here knows a queue, a type or a tenant by that name, and what was probably meant if not.

To govern what is still to come is right, so a name that nobody knows is taken. It is doubted aloud, for a slip would
otherwise never be noticed.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from taskharbor.cli.options import nearest

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver


def doubts(driver: Driver, scope: str, names: Iterable[str]) -> list[str]:
    """What to tell whoever gave these names. To be asked before anything is written, which would make them known."""
    known = _known(driver, scope)
    return [
        f"nothing uses a {scope} {name} yet{_meant(name, known)}"
        for name in names
        if name not in known and not _has_jobs(driver, scope, name)
    ]


def slips(driver: Driver, scope: str, names: Collection[str]) -> list[str]:
    """`doubts` of those only that look like a name that is known: for names that often come before their jobs."""
    known = _known(driver, scope) if names else set()
    near = [name for name in names if name not in known and nearest(name, known)]
    return doubts(driver, scope, near) if near else []


def misspelt(driver: Driver) -> list[tuple[str, str, str]]:
    """Limits and fair queues of names that nothing else uses, but for a letter or two: the scope, the name, and the
    one that was probably meant."""
    names = {("queue", queue.name) for queue in driver.queues() if queue.fair}
    names |= {("tenant", tenant) for queue in driver.queues() for tenant in queue.weights}
    names |= {(limit.scope, limit.name) for limit in driver.get_limits()}
    found = []
    for scope in sorted({scope for scope, _ in names}):
        known = _used(driver, scope)
        for name in sorted(name for of, name in names if of == scope and name not in known):
            near = nearest(name, known)
            if near and not _has_jobs(driver, scope, name):
                found.append((scope, name, near))
    return found


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f": did you mean {near}?" if near else ""


def say(doubts: Iterable[str]) -> None:
    from taskharbor.cli.output import in_one_line

    for doubt in doubts:
        print(f"taskharbor: {in_one_line(doubt)}", file=sys.stderr)


def _known(driver: Driver, scope: str) -> set[str]:
    """The names that something uses, or an earlier rule has."""
    from taskharbor.core.forms import is_as_any

    rules = {limit.name for limit in driver.get_limits() if limit.scope == scope}
    if scope == "queue":
        rules |= {queue.name for queue in driver.queues() if not is_as_any(queue)}
    elif scope == "tenant":
        rules |= {tenant for queue in driver.queues() for tenant in queue.weights}
    return rules | _used(driver, scope)


def _used(driver: Driver, scope: str) -> set[str]:
    """The names that a job, a worker or a schedule has; types and tenants of the latest jobs only, for to look at all
    of them would take too long for a hint."""
    if scope == "queue":
        workers = {queue for worker in driver.workers() for queue in worker.queues}
        return {*driver.counts().queues, *workers, *(schedule.queue for schedule in driver.schedules())}
    latest = driver.list().jobs
    if scope == "tenant":
        return {job.tenant_id for job in latest} | {schedule.tenant_id for schedule in driver.schedules()}
    handled = {name for worker in driver.workers() for name in worker.meta.get("types", "").split(",") if name}
    return {job.type for job in latest} | handled | {schedule.type for schedule in driver.schedules()}


def _has_jobs(driver: Driver, scope: str, name: str) -> bool:
    from taskharbor.core.model import JobFilter

    if scope == "queue":  # the counts had them all
        return False
    return bool(driver.count(JobFilter(type=name) if scope == "type" else JobFilter(tenant_id=name), limit=1))

"""`taskharbor doctor`: whether the store is in order, and what to do where it is not."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from taskharbor.cli.findings import Finding, ok, problem, warning
from taskharbor.cli.options import Verbs, add_verb
from taskharbor.core.errors import HOW_TO_MIGRATE, SchemaMissing, SchemaTooNew, StoreCorrupt, TaskHarborError

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver

CLOCK_OFF: Final = timedelta(seconds=2)
OVERDUE_BY: Final = timedelta(minutes=1)
OLD_DEAD: Final = timedelta(days=7)
_WHERE_NOBODY_WORKS: Final = 3
"""So many checks, the first ones, hold for a store that was moved: nobody is to start workers or redrive jobs there."""

_DESCRIPTION: Final = """\
Check a store and say what to do where something is wrong: whether it answers, has the right tables and can be
written, its clock, its settings, whatever holds it back, silent workers, the leader, stuck and forgotten jobs, limits
of misspelt names.
Changes nothing. Exit code 1 if there is a problem; warnings alone are 0.

examples:
  taskharbor doctor
  taskharbor --url postgresql://app@db/shop doctor --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "doctor", help="check the store, and say what to do", description=_DESCRIPTION)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import Table, in_one_line, print_json, show
    from taskharbor.cli.store import migrate_words, store_address
    from taskharbor.drivers.opening import redacted

    url = store_address(arguments)
    findings = list(examine(url, migrate_words(arguments)))
    problems = sum(finding.level == "problem" for finding in findings)
    if arguments.json:
        print_json(
            {
                "store": redacted(url),
                "problems": problems,
                "warnings": sum(finding.level == "warning" for finding in findings),
                "findings": [finding._asdict() for finding in findings],
            }
        )
        return 1 if problems else 0
    rows = [(finding.level, finding.check, finding.said) for finding in findings]
    show(f"{redacted(url)}", Table(("", "check", "found"), rows))
    cures = [in_one_line(f"  {finding.check}: {finding.cure}") for finding in findings if finding.cure]
    if cures:
        show("\nwhat to do\n" + "\n".join(cures))
    return 1 if problems else 0


def examine(url: str, migrate: str) -> Iterator[Finding]:
    """One finding after the other. A store that does not answer, or has other tables, is not looked into further."""
    from taskharbor.cli import doctor_files
    from taskharbor.cli.doctor_served import served
    from taskharbor.cli.store import refuse_absent
    from taskharbor.drivers.opening import open_driver, parse_url

    driver = open_driver(url)
    try:
        yield from doctor_files.examine(parse_url(url))
        began = time.monotonic()
        try:
            refuse_absent(parse_url(url))
            driver.queues()
        except SchemaMissing as error:
            said = str(error).replace(f": {HOW_TO_MIGRATE}", "")
            yield problem("tables", said, f"`{migrate}`, if the store is the right one")
            return
        except StoreCorrupt as error:
            yield problem("tables", str(error), "point --url at a TaskHarbor store, or restore this one from a backup")
            return
        except SchemaTooNew as error:
            yield problem("tables", str(error), "upgrade taskharbor here")
            return
        except TaskHarborError as error:
            yield problem("reachable", str(error), _reaching(url))
            return
        yield ok("reachable", f"answered after {(time.monotonic() - began) * 1000:.0f} ms")
        yield ok("tables", "as this version needs them")
        checks = [_moved, _clock, _store, _workers, served, _leader, _leases, _paused, _rules, _dead]
        for check in checks[:_WHERE_NOBODY_WORKS] if _is_shut(driver) else checks:
            yield from _guarded(driver, check)
    finally:
        driver.close()


def _reaching(url: str) -> str:
    from taskharbor.cli.store import store_path
    from taskharbor.drivers.opening import parse_url

    if store_path(parse_url(url)) is not None:
        return "see that the path is right, and what this user may do with the file and its directory"
    return "see that the store runs, and that URL, login and network are right"


def _guarded(driver: Driver, check: Callable[[Driver], Iterator[Finding]]) -> Iterator[Finding]:
    """A check that fails, for want of a permission perhaps, is a warning and does not end the others."""
    try:
        yield from check(driver)
    except TaskHarborError as error:
        yield warning(check.__name__.strip("_"), f"could not be checked: {error}", "")


def _store(driver: Driver) -> Iterator[Finding]:
    """What is special to a kind of store."""
    from importlib import import_module

    from taskharbor.cli.peek import has_tables, kind_of

    if has_tables(driver):
        module = import_module(f"taskharbor.cli.doctor_{kind_of(driver)}")
        for check in module.CHECKS:
            yield from _guarded(driver, check)


def _clock(driver: Driver) -> Iterator[Finding]:
    from taskharbor.core.clock import utc_now

    measure = getattr(driver, "_measure_clock", driver.now)
    before = utc_now()
    there = measure()
    offset = there - (before + (utc_now() - before) / 2)
    said = (
        f"the store's is {abs(offset.total_seconds()):.3f} s {'ahead of' if offset > timedelta(0) else 'behind'} ours"
    )
    if abs(offset) > CLOCK_OFF:
        cure = "let both machines keep time (chrony, systemd-timesyncd); leases go by the store's clock meanwhile"
        yield warning("clock", said, cure)
    else:
        yield ok("clock", said)


def _workers(driver: Driver) -> Iterator[Finding]:
    from taskharbor.cli.form import ago
    from taskharbor.core.forms import is_alive

    now = driver.now()
    workers = driver.workers()
    dead = [worker for worker in workers if not is_alive(worker, now)]
    if dead:
        heard = ", ".join(f"{worker.id} ({ago(worker.last_heartbeat, now)})" for worker in dead[:5])
        cure = "see what became of them; a running worker clears them away and frees their jobs"
        yield warning("workers", f"{len(dead)} of {len(workers)} silent: {heard}", cure)
    elif not workers:
        ready = driver.counts()["ready"]
        if ready:
            cure = "start one: taskharbor -A module:harbor worker"
            yield warning("workers", f"none, and {ready:,} {'job waits' if ready == 1 else 'jobs wait'}", cure)
        else:
            yield ok("workers", "none, and nothing waits")
    else:
        yield ok("workers", f"{len(workers)} alive")


def _leader(driver: Driver) -> Iterator[Finding]:
    from taskharbor.core.fleet import OVER_REST
    from taskharbor.core.forms import is_alive

    now = driver.now()
    alive = [worker for worker in driver.workers() if is_alive(worker, now)]
    leading = [leader for leader in driver.leaders() if leader.until > now]
    if leading:
        yield ok("leader", ", ".join(f"{leader.holder}, epoch {leader.epoch}" for leader in leading))
    elif any(worker.version != OVER_REST for worker in alive):
        cure = "wait half a minute; if there still is none, look into the workers' logs for failed elections"
        yield warning("leader", "none, although workers are alive: schedules and clearing up stand still", cure)
    elif alive and any(not schedule.paused for schedule in driver.schedules()):
        cure = "start a worker in Python beside them: taskharbor -A module:harbor worker"
        yield warning("leader", "none, and workers over REST never lead: schedules stand still", cure)
    else:
        yield ok("leader", "none, and no workers to lead")


def _leases(driver: Driver) -> Iterator[Finding]:
    from taskharbor.cli import peek

    stuck = peek.overdue(driver, driver.now(), OVERDUE_BY)
    if stuck:
        cure = "start a worker for their queues: the first look takes them back"
        yield warning("leases", f"{stuck:,} jobs are inflight though their lease ended over a minute ago", cure)
    else:
        yield ok("leases", "none outlived")


def _moved(driver: Driver) -> Iterator[Finding]:
    from taskharbor.core.carrying import departure_of

    departure = departure_of(driver)
    if departure is None:
        return
    if departure.gone:
        yield problem("moved", departure.said, "give the new store to whoever has this one; this one is a backup")
    elif departure.shut:
        yield problem("moved", departure.said, "let the move end; if it was killed, run it again, or with --give-up")
    else:
        yield warning("moved", departure.said, "switch producers and workers over, one by one")


def _is_shut(driver: Driver) -> bool:
    from taskharbor.core.carrying import departure_of

    try:
        departure = departure_of(driver)
    except TaskHarborError:  # of which the check itself tells
        return False
    return departure is not None and departure.shut


def _paused(driver: Driver) -> Iterator[Finding]:
    counts = driver.counts().queues
    waiting = {
        queue.name: counts[queue.name]["ready"] for queue in driver.queues() if queue.paused and queue.name in counts
    }
    backlog = {name: count for name, count in waiting.items() if count}
    if backlog:
        said = ", ".join(f"{name}: {count:,} waiting" for name, count in backlog.items())
        yield warning("paused queues", said, f"taskharbor queues resume {next(iter(backlog))}, if it was forgotten")
    else:
        yield ok("paused queues", "none with jobs that wait")


def _rules(driver: Driver) -> Iterator[Finding]:
    from taskharbor.cli import known

    slips = known.misspelt(driver)
    if slips:
        said = ", ".join(f"nothing uses the {scope} {name}, but {meant} is used" for scope, name, meant in slips)
        scope, name, meant = slips[0]
        verb = "fair" if scope == "tenant" or (scope, name) not in _limited(driver) else "limit"
        cure = f"if {meant} was meant, set it there with `taskharbor queues {verb}` and take this one back"
        yield warning("limits and shares", said, cure)
    else:
        yield ok("limits and shares", "none of a name that looks misspelt")


def _limited(driver: Driver) -> set[tuple[str, str]]:
    return {(limit.scope, limit.name) for limit in driver.get_limits()}


def _dead(driver: Driver) -> Iterator[Finding]:
    from taskharbor.cli import peek
    from taskharbor.cli.form import ago

    count = driver.counts()["dlq"]
    now = driver.now()
    oldest = peek.oldest_dead(driver) if count else None
    if oldest is not None and now - oldest > OLD_DEAD:
        cure = "taskharbor dlq list, then dlq redrive or dlq purge"
        yield warning("DLQ", f"{count:,} jobs, the oldest from {ago(oldest, now)}", cure)
    else:
        yield ok("DLQ", f"{count:,} jobs")

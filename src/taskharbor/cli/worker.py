"""`taskharbor worker`: run jobs."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.options import Verbs, add_verb, flag_of, nearest, options_of
from taskharbor.cli.values import positive, positive_duration, queues
from taskharbor.core.errors import (
    InvalidInput,
    MissingExtra,
    SchemaMissing,
    SchemaTooNew,
    StoreCorrupt,
    StoreMoved,
    StoreRefused,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from taskharbor.app import Harbor
    from taskharbor.worker.tally import Tally

    Drained = tuple[Tally, dict[str, int]]

_INCURABLE: Final = (StoreRefused, SchemaMissing, SchemaTooNew, StoreCorrupt, MissingExtra)
"""What waiting does not cure: somebody must correct it."""
_LEVELS: Final = ("debug", "info", "warning", "error")
_DESCRIPTION: Final = """\
Run the jobs of an application until told to stop.

Ctrl-C or SIGTERM lets running handlers finish within the grace time and puts back what did not; a second one stops
at once. With --drain the worker ends when nothing is left that it could run now, and says what it did, with all
processes in one sum. `left` counts the jobs that are still ready in its queues: those that are due later, those that
failed and wait for their next attempt, those that a pause or a limit holds back, and those of types that have no
handler here; `unhandled` counts the last ones again, as far as they are due. `inflight` counts those that somebody
has a lease on: another worker, or a process that died and whose leases have not ended.

With --drain --json, what handlers print goes to standard error, so that standard output is the document alone.

examples:
  taskharbor -A shop.jobs:harbor worker
  taskharbor -A shop.jobs:harbor worker -q default:10,mail:2
  taskharbor -A shop.jobs:harbor worker --processes 4 --log-format json
  taskharbor -A shop.jobs:harbor worker --drain --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "worker", help="run jobs", description=_DESCRIPTION)
    parser.add_argument(
        "-q",
        "--queues",
        type=queues,
        metavar="NAME[:SLOTS],…",
        help="the queues to serve, each with the jobs it may run at once (default: all that the tasks name)",
    )
    parser.add_argument(
        "--concurrency", type=positive, metavar="N", help="slots of each queue that has no number of its own"
    )
    parser.add_argument(
        "--processes",
        type=positive,
        default=1,
        metavar="N",
        help="so many processes, each with these slots (default: 1)",
    )
    parser.add_argument(
        "--drain", action="store_true", help="end when nothing is left that is due, and print the counts"
    )
    parser.add_argument("--max-jobs", type=positive, metavar="N", help="end after so many jobs")
    parser.add_argument(
        "--grace", type=positive_duration, metavar="TIME", help="time for running handlers to finish (default: 25s)"
    )
    parser.add_argument(
        "--lease", type=positive_duration, metavar="TIME", help="how long a silent worker keeps its jobs (default: 30s)"
    )
    parser.add_argument(
        "--retention", type=positive_duration, metavar="TIME", help="forget jobs that ended longer ago (default: never)"
    )
    parser.add_argument("--take-all", action="store_true", help="also take types without a handler, to the DLQ")
    parser.add_argument("--name", metavar="NAME", help="what the worker is called (default: host and process id)")
    parser.add_argument("--log-level", choices=_LEVELS, default="info", help="(default: info)")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="(default: text)")
    parser.set_defaults(run=run)


def worker_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `harbor.worker`: only what was asked for, so that its own defaults hold."""
    settings: dict[str, Any] = {
        "concurrency": arguments.concurrency,
        "max_jobs": arguments.max_jobs,
        "name": arguments.name,
        "lease_s": None if arguments.lease is None else arguments.lease.total_seconds(),
        "grace_s": None if arguments.grace is None else arguments.grace.total_seconds(),
        "take_all": arguments.take_all or None,
        "retention": arguments.retention,
        "queues": _queues(arguments),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _queues(arguments: argparse.Namespace) -> list[str] | dict[str, int] | None:
    asked: dict[str, int | None] | None = arguments.queues
    if asked is None:
        return None
    if all(slots is None for slots in asked.values()):
        return list(asked)
    default = arguments.concurrency or 10
    return {name: default if slots is None else slots for name, slots in asked.items()}


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.app import required_app
    from taskharbor.cli.drained import document_alone, print_counts
    from taskharbor.worker.program_log import ProgramLog, packages

    if isinstance(arguments.lake_in_file, str):
        # A worker has no such flag, and must not prune what the lake has not got; nor must its processes.
        os.environ.setdefault("TASKHARBOR_LAKE", arguments.lake_in_file)
    with document_alone(arguments):
        lines = ProgramLog(arguments.log_level, arguments.log_format)
        lines.begin()
        harbor = required_app(arguments)
        _refuse_memory(arguments, harbor)
        if not harbor.tasks and not arguments.take_all:
            raise InvalidInput(f"{arguments.app} has no tasks: a worker without handlers would run nothing")
        modules = (task.function.__module__ for task in harbor.tasks.values())
        replace(lines, own=packages([arguments.app, *modules])).install()
        settings = worker_settings(arguments)
        code, drained = (_run_many if arguments.processes > 1 else _run_one)(arguments, harbor, settings)
    if drained is not None:
        print_counts(arguments, *drained)
    return code


def _refuse_memory(arguments: argparse.Namespace, harbor: Harbor) -> None:
    """An application that has chosen memory itself may enqueue in this very process. Nobody else can."""
    from taskharbor.cli.store import refuse_memory

    if arguments.processes > 1 and harbor.url.lower().startswith("memory:"):
        raise InvalidInput(
            "memory:// is for one process, and each of several would have a store of its own: leave out --processes, "
            "or give a store that they can share, such as sqlite:///jobs.db"
        )
    if harbor.url == arguments.url:
        refuse_memory(harbor.url)


def _run_one(arguments: argparse.Namespace, harbor: Harbor, settings: dict[str, Any]) -> tuple[int, Drained | None]:
    from taskharbor.cli.drained import left_over, tell_parent
    from taskharbor.cli.worker_end import code_of, leave, see_to_the_end
    from taskharbor.worker import supervisor
    from taskharbor.worker.program_log import name_worker

    is_one_of_several = os.environ.get(supervisor.SUPERVISED) == "1"  # which the worker takes out of the environment
    ear = supervisor.parents_ear()
    worker = harbor.worker(**settings)
    name_worker(worker.id)
    _announce(harbor, settings, worker.id, arguments.log_format)
    if arguments.is_whole_process:
        see_to_the_end(worker)
    try:
        tally = worker.drain() if arguments.drain else worker.run()
        if ear is not None and arguments.drain:
            tell_parent(ear, tally)
        elif arguments.drain and worker.told_all:
            return 0, (tally, left_over(harbor.driver, harbor, _served(harbor, settings)))
        if worker.is_stuck and arguments.is_whole_process:
            leave(code_of(worker))
        return code_of(worker), None
    except (StoreMoved, *_INCURABLE) as error:
        if not is_one_of_several:
            raise
        print(f"taskharbor: {error}", file=sys.stderr)
        return supervisor.MOVED_AWAY if isinstance(error, StoreMoved) else supervisor.REFUSED, None
    finally:
        if not worker.is_stuck:
            harbor.close()


def _served(harbor: Harbor, settings: dict[str, Any]) -> list[str]:
    return list(settings.get("queues") or sorted({"default", *(task.queue for task in harbor.tasks.values())}))


def _run_many(arguments: argparse.Namespace, harbor: Harbor, settings: dict[str, Any]) -> tuple[int, Drained | None]:
    if arguments.name is not None:
        raise InvalidInput("--name is for one process: two workers of one name would take each other for themselves")
    _announce(harbor, settings, f"with {arguments.processes} processes", arguments.log_format)
    from taskharbor.cli.drained import left_over_at, total_of
    from taskharbor.cli.worker_end import COUNTING_S, end_within
    from taskharbor.worker import supervisor

    _try_store(harbor)
    # What the file names, each process finds there for itself, and where it is to be imported from.
    app = arguments.app if arguments.app_directory is None else None
    reports: list[bytes] = []
    hear = reports.append if arguments.drain else None
    code = supervisor.run(app, arguments.processes, words_for_one(arguments), hear)
    if hear is None or (code and not reports):
        return code, None
    if code and arguments.is_whole_process:
        end_within(COUNTING_S, code)  # the store may be what they failed of
    return code, (total_of(reports), left_over_at(harbor, _served(harbor, settings)))


def _try_store(harbor: Harbor) -> None:
    """One look at the store and its tables, so that what is wrong there is said once, and not by every process for
    itself. A store that is away, or was moved, is theirs to wait for."""
    try:
        harbor.driver.queues()
    except StoreUnavailable as error:
        if isinstance(error, StoreRefused):
            raise
    finally:
        harbor.close()  # each process opens it for itself


def words_for_one(arguments: argparse.Namespace) -> list[str]:
    """The flags that were typed, for one process of several. Environment and file, it reads by itself."""
    words = ["--processes", "1"]
    for action in options_of(arguments.leaf):
        value = vars(arguments)[action.dest]
        if action.dest not in arguments.given or action.dest in ("processes", "app", "url", "json"):
            continue
        words.append(flag_of(action))
        if action.nargs != 0:
            words.append(_text(value))
    return words


def _text(value: Any) -> str:
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    if isinstance(value, dict):
        return ",".join(name if slots is None else f"{name}:{slots}" for name, slots in value.items())
    return str(value)


def _announce(harbor: Harbor, settings: dict[str, Any], name: str, log_format: str) -> None:
    """One line, on standard error like the log, so that what --drain prints stays alone."""
    import logging

    from taskharbor.cli.output import in_one_line
    from taskharbor.core.words import many
    from taskharbor.drivers.opening import redacted

    asked = settings.get("queues")
    slots = settings.get("concurrency", 10)
    served = _served(harbor, settings)
    shown = ", ".join(f"{queue}:{asked[queue] if isinstance(asked, dict) else slots}" for queue in served)
    line = f"worker {name} on {redacted(harbor.url)}: {shown}; {many(len(harbor.tasks), 'handler')}"
    doubts = ([] if asked is None else _doubts(harbor, served)) + _doubts_of_rules(harbor)
    if log_format == "json":
        log = logging.getLogger("taskharbor.cli")
        log.info(line)
        for doubt in doubts:
            log.warning(doubt)
        return
    print(f"taskharbor {in_one_line(line)}", file=sys.stderr)
    for doubt in doubts:
        print(f"taskharbor: {in_one_line(doubt)}", file=sys.stderr)


def _doubts(harbor: Harbor, queues: list[str]) -> list[str]:
    """A queue that no task names may be meant, for jobs that are enqueued into it by name, or be a slip."""
    known = sorted({"default", harbor._terms.fields["queue"], *(task.queue for task in harbor.tasks.values())})
    doubts = []
    for queue in queues:
        if queue not in known:
            near = nearest(queue, known)
            meant = f": did you mean {near}?" if near else ""
            doubts.append(f"no task of the application names the queue {queue}{meant}")
    return doubts


def _doubts_of_rules(harbor: Harbor) -> list[str]:
    """A rule for what no task names may be meant too: it is doubted where a task names something like it."""
    queues = sorted({"default", harbor._terms.fields["queue"], *(task.queue for task in harbor.tasks.values())})
    known = {"queue": queues, "type": sorted(harbor.tasks)}
    ruled = {(scope, name): "a limit" for scope, name, _ in harbor.limits if scope in known}
    ruled.update({("queue", name): "a share" for name in harbor._shared})
    return [
        f"no task of the application names the {scope} {name}, which has {what}: did you mean {near}?"
        for (scope, name), what in ruled.items()
        if name not in known[scope] and (near := nearest(name, known[scope]))
    ]

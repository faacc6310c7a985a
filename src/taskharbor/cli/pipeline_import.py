"""`taskharbor pipeline import`: the jobs of another system, with their state and history."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.pipeline_options import need_spark

if TYPE_CHECKING:
    from taskharbor.pipeline.imports.run import ImportReport

_SYSTEMS: Final = ("taskharbor-go", "jobs-json", "mq-sql", "task-orchestrator")
_DESCRIPTION: Final = """\
Take over the jobs of another system: waiting ones wait on, with their attempts and keys; leased ones run when their
lease has ended; dead ones are in the DLQ; finished ones are history. Ids stay. Running it again changes nothing.
Stop the other system first: what it does in the meantime is not brought over.

systems:
  taskharbor-go      the table th_jobs of TaskHarbor for Go; SOURCE is postgresql://…
  jobs-json          a file jobs.json with jobs and dead letters; SOURCE is its path
  mq-sql             the tables mq_tasks, mq_task_dlq, mq_task_attempts; SOURCE is postgresql://… or mysql://…
  task-orchestrator  the table tasks; SOURCE is postgresql://…

With --dry-run it shows what would come over, and what cannot, and changes nothing.

examples:
  taskharbor --url sqlite:///jobs.db pipeline import --from jobs-json backend/data/jobs.json --type report.build
  taskharbor pipeline import --from mq-sql mysql://app@db/queue --dry-run
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "import", help="take over the jobs of another system", description=_DESCRIPTION)
    parser.add_argument("source", metavar="SOURCE", help="the database, or the file, that the jobs are in")
    parser.add_argument("--from", dest="system", choices=_SYSTEMS, required=True, help="which system it is")
    parser.add_argument("--type", metavar="NAME", help="the type of all jobs, whatever the source says")
    parser.add_argument("--queue", metavar="NAME", help="the queue of all jobs, whatever the source says")
    parser.add_argument("--tenant", metavar="NAME", help="the tenant, where the source has none (default: default)")
    parser.add_argument("--table", metavar="NAME", help="taskharbor-go: the table, if it is not th_jobs")
    parser.add_argument("--flip-priority", action="store_true", help="mq-sql: there, lower numbers ran first")
    parser.add_argument(
        "--rejects", metavar="DIR", help="where refused jobs go (default: the lake's, else a directory)"
    )
    parser.add_argument("--lake", metavar="DIR", help="a lake, whose silver/rejects takes refused jobs")
    parser.add_argument("--dry-run", action="store_true", help="show the mapping, and change nothing")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    need_spark()
    from taskharbor.cli.store import store_address
    from taskharbor.pipeline.imports.run import import_jobs

    report = import_jobs(
        arguments.system,
        arguments.source,
        store_address(arguments),
        type=arguments.type,
        queue=arguments.queue,
        tenant=arguments.tenant,
        flip_priority=arguments.flip_priority,
        table=arguments.table,
        rejects=arguments.rejects,
        lake=arguments.lake,
        dry_run=arguments.dry_run,
    )
    _show(report, as_json=arguments.json)
    return 0


def _show(report: ImportReport, *, as_json: bool) -> None:
    from taskharbor.cli.output import Table, print_json, show

    if as_json:
        print_json(report.as_dict())
        return
    headings = ("read", "would come over" if report.dry_run else "imported", "there already", "rejected")
    counts = (report.read, report.imported, report.known, report.rejected)
    whole = "All but the rejected ones: as they were." if report.rejected else "Everything was carried over as it was."
    show(
        Table(headings, [[f"{count:,}" for count in counts]]),
        Table(("state", "jobs"), [[state, f"{count:,}"] for state, count in report.by_status.items()], empty="no jobs"),
        Table(
            ("times", "not carried over as it was"),
            [[f"{count:,}", note] for note, count in report.notes.items()],
            empty=whole,
        ),
    )
    if report.rejects:
        print(f"the rejected jobs, with the reasons: {report.rejects}")

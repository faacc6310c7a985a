"""`taskharbor workflows`: what runs together, drawn with where each step stands."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.options import Verbs, add_group, add_verb
from taskharbor.cli.values import positive

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver
    from taskharbor.core.workflow import Workflow

_DESCRIPTION: Final = """\
See, cancel and redrive workflows: chains, groups, chords, and graphs of steps.

examples:
  taskharbor workflows list
  taskharbor workflows show 0192f0c1-…
  taskharbor workflows redrive 0192f0c1-…
"""
_LIST: Final = """\
List workflows, newest first.

examples:
  taskharbor workflows list --limit 50
  taskharbor workflows list --state failed --state cancelled
  taskharbor workflows list --cursor LAST_ID --json
"""
_SHOW: Final = """\
Draw a workflow: its steps in the order in which they may run, with where each of them stands; and
the first steps that have failed, with their errors.

examples:
  taskharbor workflows show 0192f0c1-…
  taskharbor workflows show 0192f0c1-… --json
"""
_CANCEL: Final = """\
Cancel workflows: nothing of them begins any more, and what runs is asked to stop.

examples:
  taskharbor workflows cancel 0192f0c1-…
"""
_REDRIVE: Final = """\
Let workflows that have failed go on: their dead steps come back from the DLQ, with what was held back behind them.

examples:
  taskharbor workflows redrive 0192f0c1-…
"""
MOST_STEPS: Final = 10_000
STATES: Final = (
    "starting",
    "running",
    "done",
    "failed",
    "cancelling",
    "cancelled",
    "compensating",
    "compensated",
)
_PAGE: Final = 1_000


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "workflows", help="jobs that wait for jobs", description=_DESCRIPTION)
    parser = add_verb(group, "list", help="list workflows, newest first", description=_LIST)
    parser.add_argument(
        "--state",
        choices=STATES,
        action="append",
        help="only workflows in this state; may be repeated for more of them",
    )
    parser.add_argument("--limit", type=positive, default=20, metavar="N", help="at most so many (default: 20)")
    parser.add_argument("--cursor", metavar="ID", help="go on behind this one, the last of a list")
    parser.set_defaults(run=run_list)
    parser = add_verb(group, "show", help="draw one with the states of its steps", description=_SHOW)
    parser.add_argument("id", metavar="ID")
    parser.set_defaults(run=run_show)
    for name, description, call, done in (
        ("cancel", _CANCEL, "cancel_workflow", "{} is cancelled"),
        ("redrive", _REDRIVE, "redrive_workflow", "{} goes on"),
    ):
        parser = add_verb(group, name, help=f"{name} whole workflows", description=description)
        parser.add_argument("ids", metavar="ID", nargs="+")
        parser.set_defaults(run=run_change, call=call, done=done)


def run_list(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.form import ago
    from taskharbor.cli.output import Table, print_json, show
    from taskharbor.cli.store import opened

    with opened(arguments) as driver:
        now = driver.now()
        found, cursor = _page(driver, arguments)
    if arguments.json:
        print_json({"workflows": [workflow_data(flow) for flow in found], "cursor": cursor})
        return 0
    rows = [
        (flow.id, flow.name, flow.state.value, f"{flow.done:,} of {flow.total:,}", flow.failed, flow.tenant_id,
         ago(flow.created_at, now))
        for flow in found
    ]  # fmt: skip
    headings = ("workflow", "name", "state", "done", "failed", "tenant", "started")
    show(Table(headings, rows, empty=_none_found(arguments)))
    if cursor is not None:
        show(f"there are more: --cursor {cursor}")
    return 0


def _none_found(arguments: argparse.Namespace) -> str:
    if arguments.cursor is not None:
        return "no more workflows"
    if arguments.state:
        return f"no workflow is {' or '.join(arguments.state)}"
    return "no workflows: harbor.start(chain(…)) starts one"


def _page(driver: Driver, arguments: argparse.Namespace) -> tuple[list[Workflow], str | None]:
    """As many as were asked for, and behind which one there are more. The store knows nothing of states here: as many
    of its pages as it takes."""
    limit: int = arguments.limit
    size = _PAGE if arguments.state else min(limit + 1, _PAGE)
    cursor: str | None = arguments.cursor
    found: list[Workflow] = []
    while True:
        page = driver.list_workflows(cursor, size)
        found += [flow for flow in page if not arguments.state or flow.state.value in arguments.state]
        if len(found) > limit:
            return found[:limit], found[limit - 1].id
        if len(page) < size:
            return found, None
        cursor = page[-1].id


def run_show(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.failures import failure_table, first_failures
    from taskharbor.cli.flowchart import drawn
    from taskharbor.cli.output import in_one_line, print_json, show
    from taskharbor.cli.store import opened

    with opened(arguments) as driver:
        flow = driver.get_workflow(arguments.id)
        counts = driver.workflow_counts(arguments.id)
        edges = driver.workflow_edges(arguments.id)
        steps = _steps(driver, arguments.id)
        failed = sum(each.steps for each in counts if each.state == "failed")
        failures = first_failures(driver, arguments.id) if failed else []
    if arguments.json:
        data = {
            **workflow_data(flow),
            "parts": [{"part": each.part, "state": each.state.value, "steps": each.steps} for each in counts],
            "steps": [
                {
                    "number": step.number,
                    "name": step.name,
                    "part": step.part,
                    "job": step.job_id,
                    "state": step.state.value,
                    "status": None if step.status is None else step.status.value,
                }
                for step in steps
            ],
            "failures": [each._asdict() for each in failures],
            "edges": [list(edge) for edge in edges],
            "complete": len(steps) < MOST_STEPS,
        }
        print_json(data)
        return 0
    heading = f"{flow.name}  {flow.state.value}  {flow.done:,} of {flow.total:,} done, {flow.failed:,} failed"
    show(in_one_line(heading))
    print(drawn(steps, edges, counts))
    if failures:
        print()
        show(failure_table(failures))
    if failed > len(failures):
        show(f"and {failed - len(failures):,} more: --json has every step with its state and its job")
    return 0


def _steps(driver: Driver, id: str) -> list[Any]:
    steps: list[Any] = []
    while len(steps) < MOST_STEPS and (page := driver.workflow_steps(id, steps[-1].number if steps else None)):
        steps.extend(page)
    return steps[:MOST_STEPS]


def run_change(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import in_one_line, print_each
    from taskharbor.cli.store import opened
    from taskharbor.core.errors import InvalidInput

    done: dict[str, dict[str, Any]] = {}
    refused: list[InvalidInput] = []
    with opened(arguments, writes=True) as driver:
        for id in arguments.ids:
            driver.get_workflow(id)  # before any of them is changed
        for id in arguments.ids:
            try:
                flow = getattr(driver, arguments.call)(id)
                if arguments.call == "cancel_workflow" and flow.state.value not in ("cancelled", "cancelling"):
                    raise InvalidInput(f"workflow {id} is {flow.state.value} already: there is nothing to cancel")
                done[id] = workflow_data(flow)
            except InvalidInput as error:
                refused.append(error)
    if refused and not done:
        raise refused[0]
    print_each(arguments, "workflows", done, arguments.done)
    for each in refused:
        print(f"taskharbor: {in_one_line(str(each))}", file=sys.stderr)
    return 1 if refused else 0


def workflow_data(flow: Workflow) -> dict[str, Any]:
    from taskharbor.core.forms import iso

    return {
        "id": flow.id,
        "name": flow.name,
        "tenant": flow.tenant_id,
        "policy": flow.policy.value,
        "state": flow.state.value,
        "total": flow.total,
        "done": flow.done,
        "failed": flow.failed,
        "created_at": iso(flow.created_at),
        "ended_at": None if flow.ended_at is None else iso(flow.ended_at),
    }

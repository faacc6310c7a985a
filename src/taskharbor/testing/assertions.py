"""What the code under test has enqueued."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from taskharbor.app.errors import InvalidArguments
from taskharbor.app.harbor import Harbor
from taskharbor.app.lookup import JobView
from taskharbor.app.naming import task_name
from taskharbor.app.task import Task
from taskharbor.core.model import JobFilter

_PAGE: Final = 1_000
_MOST_SHOWN: Final = 20


def enqueued(harbor: Harbor, task: str | Task[Any, Any] | None = None, /, *, queue: str | None = None) -> list[JobView]:
    """Every job of the harbor's store, in whatever state, oldest first; only those of one task or queue if given."""
    chosen = JobFilter(type=None if task is None else task_name(task), queue=queue)
    page = harbor.driver.list(chosen, limit=_PAGE)
    records = list(page.jobs)
    while page.cursor is not None:
        page = harbor.driver.list(chosen, page.cursor, limit=_PAGE)
        records += page.jobs
    return [JobView(record, harbor.driver, harbor.codec) for record in reversed(records)]


def assert_enqueued(
    harbor: Harbor,
    task: str | Task[Any, Any],
    /,
    *,
    queue: str | None = None,
    times: int | None = None,
    **arguments: Any,
) -> list[JobView]:
    """Fail unless a job of the task was enqueued with these arguments (it may have others); `times` says how many
    there must be, at least one if left out. Returns the jobs that match."""
    name = task_name(task)
    wanted = _as_stored(harbor, task, arguments)
    found = [job for job in enqueued(harbor, name, queue=queue) if _has(job, wanted)]
    if bool(found) if times is None else len(found) == times:
        return found
    expected = f"{_call(name, arguments)}{f' in {queue!r}' if queue else ''}"
    how_often = "" if times is None else f" {times} {'time' if times == 1 else 'times'}, not {len(found)}"
    raise AssertionError(f"expected {expected} to have been enqueued{how_often}. {_what_was(harbor)}")


def _as_stored(harbor: Harbor, task: str | Task[Any, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as a payload has them: a datetime is text there."""
    known = task if isinstance(task, Task) else harbor.tasks.get(task)
    if known is None:
        return dict(arguments)
    try:
        return {name: known.binding._dumped(name, value) for name, value in arguments.items()}
    except InvalidArguments as error:
        raise AssertionError(f"no such job can have been enqueued: {error}") from None


def _has(job: JobView, wanted: Mapping[str, Any]) -> bool:
    given = job.arguments
    if not isinstance(given, dict):
        return not wanted
    return all(name in given and given[name] == value for name, value in wanted.items())


def _what_was(harbor: Harbor) -> str:
    jobs = enqueued(harbor)
    if not jobs:
        return "Nothing was enqueued at all."
    lines = [f"  {_call(job.type, job.arguments)} in {job.queue!r}, {job.state}" for job in jobs[:_MOST_SHOWN]]
    if len(jobs) > _MOST_SHOWN:
        lines.append(f"  … and {len(jobs) - _MOST_SHOWN} more")
    return "\n".join(["Enqueued were:", *lines])


def _call(name: str, arguments: Any) -> str:
    if not isinstance(arguments, Mapping):
        return f"{name}({arguments!r})"
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

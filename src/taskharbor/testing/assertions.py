"""What the code under test has enqueued."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from taskharbor.app.errors import InvalidArguments
from taskharbor.app.harbor import Harbor
from taskharbor.app.lookup import JobView
from taskharbor.app.naming import task_name
from taskharbor.app.options import unknown_option
from taskharbor.app.task import Task
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import check_duration
from taskharbor.core.model import JobFilter

_PAGE: Final = 1_000
_MOST_SHOWN: Final = 20
_OPTIONS: Final = {
    "queue": "queue",
    "tenant": "tenant_id",
    "key": "idempotency_key",
    "priority": "priority",
    "run_at": "run_at",
    "expires_at": "expires_at",
    "max_attempts": "max_attempts",
    "timeout": "timeout",
    "meta": "meta",
    "id": "id",
}
"""The options that can be asked for, and where a job has them."""


def enqueued(harbor: Harbor, task: str | Task[Any, Any] | None = None, /, *, queue: str | None = None) -> list[JobView]:
    """Every job of the harbor's store, in whatever state, oldest first; only those of one task or queue if given."""
    chosen = JobFilter(type=None if task is None else task_name(task), queue=queue)
    page = harbor.driver.list(chosen, limit=_PAGE)
    records = list(page.jobs)
    while page.cursor is not None:
        page = harbor.driver.list(chosen, page.cursor, limit=_PAGE)
        records += page.jobs
    return [JobView(record, harbor.driver, harbor.codec, harbor.encryption) for record in reversed(records)]


def assert_enqueued(
    harbor: Harbor,
    task: str | Task[Any, Any],
    /,
    *,
    queue: str | None = None,
    times: int | None = None,
    options: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    **named: Any,
) -> list[JobView]:
    """Fail unless a job of the task was enqueued with these arguments (it may have others); `times` says how many
    there must be, at least one if left out. Returns the jobs that match.

    `options` are those that it must have been enqueued with: `options={"tenant": "acme", "key": "welcome-ada"}`.
    Arguments whose names are taken here go into `arguments`: `arguments={"queue": "mail", "times": 3}`.
    """
    name = task_name(task)
    terms = _terms(options or {})
    given = {**_mapping(arguments), **named}
    wanted = _as_stored(harbor, task, given)
    found = [job for job in enqueued(harbor, name, queue=queue) if _has(job, wanted) and _was_given(job, terms)]
    if bool(found) if times is None else len(found) == times:
        return found
    with_options = f" with {', '.join(f'{key}={value!r}' for key, value in options.items())}" if options else ""
    expected = f"{_call(name, given)}{f' in {queue!r}' if queue else ''}{with_options}"
    how_often = "" if times is None else f" {times} {'time' if times == 1 else 'times'}, not {len(found)}"
    raise AssertionError(f"expected {expected} to have been enqueued{how_often}. {_what_was(harbor)}")


def _mapping(arguments: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidInput(
            f"arguments maps names to values, got {arguments!r}: arguments={{'arguments': …}} for that one"
        )
    return arguments or {}


def _terms(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as a job has them."""
    for name in options:
        if name not in _OPTIONS:
            raise unknown_option(name, _OPTIONS)
    terms = {_OPTIONS[name]: value for name, value in options.items()}
    if terms.get("timeout") is not None:
        terms["timeout"] = check_duration(terms["timeout"], "timeout")
    return terms


def _was_given(job: JobView, terms: Mapping[str, Any]) -> bool:
    for field, value in terms.items():
        found = getattr(job.record, field)
        if field == "meta":  # it may have others
            if any(found.get(key) != text for key, text in (value or {}).items()):
                return False
        elif found != value:
            return False
    return True


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

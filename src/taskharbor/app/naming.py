"""Jobs by the name of their task, whether or not its function is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskharbor.app.options import EnqueueOptions, Terms
from taskharbor.app.task import Task
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import NewJob

if TYPE_CHECKING:
    from taskharbor.app.harbor import Harbor


_NO_ARGUMENTS: Final = (str, int, float, list, tuple, set, frozenset)
"""What no worker takes for arguments. What else there is, a codec of the application may know how to write."""


def task_name(task: str | Task[Any, Any]) -> str:
    if isinstance(task, Task):
        return task.name
    if isinstance(task, str):
        return task
    raise InvalidInput(f"a task is given by its name or as it is, got {type(task).__name__}")


def terms_of(harbor: Harbor, task: str | Task[Any, Any], options: EnqueueOptions) -> Terms:
    """The options that count for a job of this task."""
    known = task if isinstance(task, Task) else harbor.tasks.get(task_name(task))
    return (harbor._terms if known is None else known._terms).with_options(options)


def job_of(
    harbor: Harbor,
    task: str | Task[Any, Any],
    payload: Any,
    options: EnqueueOptions,
    clock: Callable[[], datetime] | None = None,
) -> tuple[NewJob, Terms]:
    """The job that `harbor.enqueue` means, checked as far as its task is known here. `clock` stands for the store's,
    where asking that would hold up an event loop."""
    name = task_name(task)
    known = task if isinstance(task, Task) else harbor.tasks.get(name)
    terms = terms_of(harbor, task, options)
    return terms.new_job(name, _payload(harbor, name, known, payload), clock or harbor.now), terms


def _by_name(name: str, payload: Any) -> InvalidInput:
    cure = ", which is no mapping even if it is JSON" if isinstance(payload, str) else ""
    kind = type(payload).__name__
    return InvalidInput(f"{name}: its arguments are given by name, give a mapping {{'name': value}}, got {kind}{cure}")


def _payload(harbor: Harbor, name: str, task: Task[Any, Any] | None, payload: Any) -> bytes:
    if isinstance(payload, bytes):
        if task is not None:
            task.arguments(payload)
        return payload
    if task is None:
        if isinstance(payload, _NO_ARGUMENTS):
            raise _by_name(name, payload)
        return harbor.codec.encode({} if payload is None else payload)
    if payload is not None and not isinstance(payload, Mapping):
        raise _by_name(name, payload)
    return task._payload((), payload or {})

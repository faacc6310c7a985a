"""What went wrong in a workflow: its first failed steps, each with the error of its job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from taskharbor.cli.output import Table, shortened
from taskharbor.core.endings import why
from taskharbor.core.errors import JobNotFound
from taskharbor.core.model import Job, Status
from taskharbor.core.workflow import Step, StepState

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver

SHOWN: Final = 5
_PAGE: Final = 10_000


class Failure(NamedTuple):
    step: str
    job_id: str
    error: str


def first_failures(driver: Driver, id: str) -> list[Failure]:
    """A few failed steps, in order of their numbers, each with all of its error."""
    found: list[Failure] = []
    for step in _steps(driver, id):
        if step.state is StepState.FAILED:
            found.append(Failure(step.name, step.job_id, _error(driver, step.job_id)))
            if len(found) == SHOWN:
                break
    return found


def _steps(driver: Driver, id: str) -> Iterator[Step]:
    after: int | None = None
    while page := driver.workflow_steps(id, after, _PAGE):
        yield from page
        after = page[-1].number


def _error(driver: Driver, job_id: str) -> str:
    try:
        job = driver.get(job_id)
    except JobNotFound:
        return "its job is gone"
    return why(driver, job) or _ending(job)


def _ending(job: Job) -> str:
    if job.status is Status.DLQ:
        return f"in the DLQ: {job.dlq_code}"
    return "expired before it ran" if job.status is Status.EXPIRED else f"was {job.status.value}"


def failure_table(failures: list[Failure]) -> Table:
    rows = [(each.step, each.job_id, shortened(each.error, 70)) for each in failures]
    return Table(("failed step", "job", "error"), rows)

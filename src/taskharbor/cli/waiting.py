"""Why a job that is due has not begun: what holds it back as far as the store tells, each with where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskharbor.cli.doctor_served import handles
from taskharbor.cli.queue_rules import limit_of, limit_text
from taskharbor.core.errors import WorkflowNotFound
from taskharbor.core.forms import is_alive
from taskharbor.core.limiting import Judge
from taskharbor.core.model import Status
from taskharbor.core.workflow import WORKFLOW

if TYPE_CHECKING:
    from datetime import datetime

    from taskharbor.core.contract import Driver
    from taskharbor.core.model import Job


def reasons(driver: Driver, job: Job, now: datetime) -> list[str]:
    """Nothing for a job that runs, has ended or is not due. A limit is named if it counts this job, full or not."""
    if job.phase(now) == "waiting":
        return [_other_steps(driver, job)]
    if job.status is not Status.READY or job.due_at > now:
        return []
    if any(queue.paused for queue in driver.queues() if queue.name == job.queue):
        return [f"queue {job.queue} is paused (taskharbor queues resume {job.queue})"]
    limits = [limit for _, limit in Judge(driver.get_limits(), now).buckets_of(job)]
    found = [f"the limit of {limit_of(*limit.key)}: {limit_text(limit)}" for limit in limits]
    alive = [worker for worker in driver.workers() if is_alive(worker, now)]
    there = [worker for worker in alive if job.queue in worker.queues]
    if not there:
        found.append(f"a worker: none that is alive serves queue {job.queue}")
    elif not any(handles(worker, job.type) for worker in there):
        found.append(f"a worker: none that is alive handles the type {job.type}")
    return found


def _other_steps(driver: Driver, job: Job) -> str:
    """What a step that has no time yet waits for."""
    id = job.meta.get(WORKFLOW, "")
    try:
        state = driver.get_workflow(id).state.value
    except WorkflowNotFound:
        return "other steps of a workflow that is gone"
    return f"other steps of its workflow, which is {state}: taskharbor workflows show {id}"

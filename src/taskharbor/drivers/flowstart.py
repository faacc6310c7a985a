"""A workflow as it comes in: the jobs of its steps, held where they have to wait, in parts that a transaction takes."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from taskharbor.core.errors import InvalidInput
from taskharbor.core.ids import new_ids
from taskharbor.core.intake import Batch, admit
from taskharbor.core.limits import Limits
from taskharbor.core.model import HELD, NewJob
from taskharbor.core.workflow import STEP, WORKFLOW, NewStep, NewWorkflow, StepState, compensation_id
from taskharbor.drivers.flowing import AT_ONCE, StepRow

if TYPE_CHECKING:
    from datetime import datetime


def first_state(waiting: int, large: bool) -> StepState:
    return StepState.WAITING if waiting else StepState.HELD if large else StepState.OPEN


def jobs_of(flow: NewWorkflow, id: str, waiting: Sequence[int]) -> list[NewJob]:
    made = new_ids(len(flow.steps))
    return [
        _job_of(step, flow, id, made_id, waits=count > 0)
        for step, made_id, count in zip(flow.steps, made, waiting, strict=True)
    ]


def held_back(batch: Batch, waiting: Sequence[int], *, hold_all: bool) -> Batch:
    """The batch with those jobs held that wait for others, or all."""
    held = [
        job._replace(due_at=HELD) if count or hold_all else job for job, count in zip(batch.fresh, waiting, strict=True)
    ]
    return batch._replace(fresh=held)


def _job_of(step: NewStep, flow: NewWorkflow, id: str, made_id: str, *, waits: bool) -> NewJob:
    job = step.job
    if job.idempotency_key is not None:
        raise InvalidInput(f"step {step.name!r} has a key: a workflow is started as a whole, and its steps have none")
    if job.run_at is not None and waits:
        raise InvalidInput(f"step {step.name!r} waits for others, so it cannot have a time of its own")
    if job.tenant_id != flow.tenant_id:
        raise InvalidInput(f"step {step.name!r} is of tenant {job.tenant_id!r}, its workflow of {flow.tenant_id!r}")
    meta = {**(job.meta or {}), WORKFLOW: id, STEP: step.name}
    return job._replace(id=job.id or made_id, meta=meta)


def chunks_of(rows: Sequence[StepRow]) -> list[Sequence[StepRow]]:
    return [rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE)]


def part_of(batch: Batch, start: int, count: int) -> Batch:
    fresh = batch.fresh[start : start + count]
    return Batch(fresh, batch.answers[start : start + count], [job.id for job in fresh])


def written_compensation(job: NewJob, id: str, limits: Limits, now: datetime) -> str:
    """The compensation as text, once it has been checked."""
    admit([job._replace(id=None)], now, limits)
    if job.idempotency_key is not None or job.run_at is not None or job.expires_at is not None:
        raise InvalidInput("a compensation has neither a key nor a time of its own")
    kept: dict[str, Any] = {
        "type": job.type, "queue": job.queue, "tenant_id": job.tenant_id, "priority": job.priority,
        "max_attempts": job.max_attempts, "meta": dict(job.meta or {}),
        "timeout": None if job.timeout is None else getattr(job.timeout, "total_seconds", lambda: job.timeout)(),
        "payload": b64encode(job.payload).decode(),
    }  # fmt: skip
    return json.dumps(kept)


def read_compensation(text: str, id: str) -> NewJob:
    kept = json.loads(text)
    meta = {**kept.pop("meta"), WORKFLOW: id, STEP: "compensation"}
    return NewJob(payload=b64decode(kept.pop("payload")), meta=meta, id=compensation_id(id), **kept)

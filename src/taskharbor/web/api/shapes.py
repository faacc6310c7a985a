"""What clients get, for the description of the API. Answers are written by `forms`; tests hold the two together."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from taskharbor.core.model import Outcome, Status


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EnqueuedJob(Shape):
    id: str
    existed: bool = Field(description="Whether the job was there already under the same key.")


class Rejected(Shape):
    line: int
    problem: str


class BulkAnswer(Shape):
    enqueued: int
    existed: int
    rejected: list[Rejected] = Field(description="The first hundred.")
    rejected_count: int
    stopped_at: int | None = Field(
        description="The line that ended it, with on_error=stop; those behind were not read."
    )


class ProgressShape(Shape):
    done: float
    total: float | None
    note: str


class JobSummary(Shape):
    id: str
    type: str
    queue: str
    tenant_id: str
    status: Status
    phase: str = Field(description="scheduled, waiting (a step, for others), ready, claimed, running, or the status.")
    priority: int
    meta: dict[str, str]
    attempts: int = Field(description="Failures so far.")
    max_attempts: int
    deliveries: int
    last_error: str | None
    dlq_reason: str | None
    dlq_code: str | None
    progress: ProgressShape | None
    timeout: float | None
    idempotency_key: str | None
    lease_owner: str | None
    lease_expires_at: datetime | None
    run_at: datetime | None
    due_at: datetime
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    failed_at: datetime | None
    dlq_failed_at: datetime | None
    cancel_requested_at: datetime | None
    completed_at: datetime | None


class JobAttempt(Shape):
    number: int
    delivery: int
    outcome: Outcome
    error: str
    code: str | None
    worker: str
    due_at: datetime
    claimed_at: datetime
    started_at: datetime
    finished_at: datetime
    waited_s: float
    ran_s: float


class JobDetail(JobSummary):
    payload: Any = Field(None, description="As JSON, if it is; else see payload_base64.")
    payload_base64: str | None = Field(None, description="Bytes that are no JSON, or encrypted.")
    result: Any = None
    result_base64: str | None = None
    attempt_log: list[JobAttempt] = Field(description="The oldest first, at most the last thousand.")


class JobPage(Shape):
    jobs: list[JobSummary]
    cursor: str | None = Field(description="For the next page; null on the last.")


class JobStatus(Shape):
    id: str
    status: Status


class LeasedJob(JobSummary):
    payload: Any = None
    payload_base64: str | None = None


class LeaseShape(Shape):
    id: str = Field(description="The job's id.")
    token: str = Field(description="To be shown with every settle and extend.")
    expires_at: datetime
    fence: int = Field(description="Rises with every delivery of the job.")
    job: LeasedJob


class LeasePage(Shape):
    leases: list[LeaseShape]


class Extended(Shape):
    id: str
    token: str
    expires_at: datetime
    cancel_requested: bool = Field(description="Somebody wants the job stopped: stop, and settle it.")


class Settled(JobStatus):
    run_at: datetime | None = Field(None, description="When it runs again.")


class Redriven(Shape):
    redriven: int
    ids: list[str] = Field(description="The first thousand.")


class LimitShape(Shape):
    scope: str
    name: str
    per: str | None
    concurrency: int | None
    rate: float | None
    burst: int | None


class QueueShape(Shape):
    name: str
    paused: bool
    fair: bool
    weights: dict[str, float]
    limits: list[LimitShape]
    counts: dict[str, int]
    scheduled: int
    oldest_due: datetime | None


class QueuePage(Shape):
    as_of: datetime = Field(description="When the jobs were counted; a large store is not counted at every question.")
    queues: list[QueueShape]
    limits: list[LimitShape] = Field(description="Of types and tenants.")


class QueueTap(Shape):
    name: str
    paused: bool


class WorkerShape(Shape):
    id: str
    hostname: str
    pid: int
    queues: list[str]
    slots: int
    version: str
    started_at: datetime | None
    last_heartbeat: datetime | None
    alive: bool
    meta: dict[str, str]


class LeaderShape(Shape):
    name: str
    holder: str
    epoch: int
    until: datetime | None
    current: bool


class WorkerPage(Shape):
    workers: list[WorkerShape]
    leaders: list[LeaderShape]


class ScheduleShape(Shape):
    name: str
    spec: str
    timezone: str
    type: str
    queue: str
    tenant_id: str
    priority: int
    overlap: str
    paused: bool
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_job_id: str | None


class SchedulePage(Shape):
    schedules: list[ScheduleShape]

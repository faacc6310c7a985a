"""What `taskharbor demo` does: a few jobs live through everything the driver contract promises.

The story sets its own clock, because every operation takes the time as an argument: a minute passes at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from taskharbor.core.codec import JsonCodec
from taskharbor.core.contract import Driver
from taskharbor.core.errors import LeaseLost
from taskharbor.core.ids import new_id
from taskharbor.core.model import Attempt, Job, LeasedJob, NewJob, RetryUpdate, Settlement
from taskharbor.core.retry import Backoff

SECOND: Final = timedelta(seconds=1)
LEASE: Final = 30 * SECOND
BULK_JOBS: Final = 2_000
BULK_BATCH: Final = 500

_codec = JsonCodec()


@dataclass
class Story:
    """The steps taken so far, and the clock they were taken by."""

    driver: Driver
    queue: str
    start: datetime
    now: datetime
    ids: list[str] = field(default_factory=list)
    steps: list[tuple[float, str]] = field(default_factory=list)
    """Seconds since the start by the story's clock, and what happened then."""

    def tell(self, what: str) -> None:
        self.steps.append(((self.now - self.start).total_seconds(), what))

    def later(self, seconds: int) -> None:
        self.now += seconds * SECOND

    def reserve(self, owner: str, limit: int = 10) -> list[LeasedJob]:
        return self.driver.reserve(self.queue, now=self.now, lease_for=LEASE, limit=limit, owner=owner)

    def jobs(self) -> list[Job]:
        return [self.driver.get(id) for id in self.ids]

    def attempts(self) -> list[Attempt]:
        found = [attempt for id in self.ids for attempt in self.driver.attempts(id)]
        return sorted(found, key=lambda attempt: (attempt.finished_at, attempt.job_id))


def tell_story(driver: Driver) -> Story:
    """Run the whole story on a queue of its own, so that it disturbs nothing in a store that is in use."""
    begin = driver.now()
    story = Story(driver, queue=f"demo-{new_id()[-6:]}", start=begin, now=begin)
    _enqueue(story)
    held = _work(story)
    _lose_a_lease(story, held)
    _try_again(story)
    return story


def _enqueue(story: Story) -> None:
    def job(type: str, tenant: str, priority: int = 0, run_at: datetime | None = None, **payload: Any) -> NewJob:
        return NewJob(type, _codec.encode(payload), story.queue, tenant, priority=priority, run_at=run_at)

    # One job per key and queue: the next demo on the same store has a queue, and so an invoice, of its own.
    unique = ("tenant", "type", "queue")
    body = _codec.encode({"number": 1042})
    invoice = NewJob("invoice.send", body, story.queue, "acme", key="invoice-1042", unique=unique)
    answers = story.driver.enqueue(
        [
            job("email.send", "acme", to="ada@example.com"),
            job("report.build", "globex", priority=9, month="2031-05"),
            job("card.charge", "globex", amount=-1),
            job("image.resize", "acme", path="harbor.png"),
            job("digest.send", "acme", run_at=story.now + 3600 * SECOND, week=20),
            invoice,
        ],
        story.now,
    )
    story.ids = [answer.id for answer in answers]
    story.tell(f"enqueued {len(answers)} jobs of 2 tenants, one with priority 9, one to run in an hour")
    again = story.driver.enqueue([invoice], story.now)[0]
    same = "the same job came back" if again.existed and again.id == story.ids[-1] else "a SECOND job was made"
    story.tell(f"enqueued invoice-1042 once more: {same}")


def _work(story: Story) -> LeasedJob:
    """Ada takes everything that is due, and settles all of it but one job in a single batch."""
    taken = story.reserve("ada")
    story.tell(f"ada reserved {len(taken)}, highest priority first: {', '.join(item.job.type for item in taken)}")
    by_type = {item.job.type: item for item in taken}
    story.later(2)
    email = by_type["email.send"]
    update = RetryUpdate(
        run_at=story.now + Backoff(base=60, jitter="none").delay(1),
        attempts=email.job.attempts + 1,
        last_error="mail server busy",
        failed_at=story.now,
    )
    report, invoice, charge = by_type["report.build"], by_type["invoice.send"], by_type["card.charge"]
    story.driver.settle(
        [
            Settlement.ack(report.job.id, report.lease.token, result=_codec.encode({"pages": 12})),
            Settlement.ack(invoice.job.id, invoice.lease.token),
            Settlement.retry(email.job.id, email.lease.token, update=update),
            Settlement.fail(charge.job.id, charge.lease.token, reason="amount is negative"),
        ],
        now=story.now,
    )
    story.tell("ada settled four in one batch: two done, email.send to retry in 60 s, card.charge to the DLQ")
    return by_type["image.resize"]


def _lose_a_lease(story: Story, held: LeasedJob) -> None:
    """Ada falls silent over her last job. Bob gets it, and Ada's late word no longer counts."""
    story.later(30)
    story.tell("ada has been silent over image.resize, and her lease has ended")
    (mine,) = story.reserve("bob", limit=1)
    story.tell(f"bob reserved {mine.job.type}: delivery {mine.job.deliveries}, with a new token")
    try:
        story.driver.ack(held.job.id, held.lease.token, now=story.now)
        story.tell("ada's late ack was ACCEPTED")
    except LeaseLost as error:
        story.tell(f"ada's late ack was refused: {type(error).__name__}")
    story.later(1)
    story.driver.ack(mine.job.id, mine.lease.token, now=story.now)
    story.tell("bob acked it: done once")


def _try_again(story: Story) -> None:
    story.later(60)
    (again,) = story.reserve("bob", limit=1)
    story.driver.ack(again.job.id, again.lease.token, now=story.now)
    story.tell(f"bob ran {again.job.type} again, and it succeeded")


@dataclass(frozen=True)
class BulkTimes:
    """Seconds on the wall for a bulk of jobs, in batches."""

    jobs: int
    enqueue_s: float
    drain_s: float


def time_bulk(driver: Driver, jobs: int = BULK_JOBS, batch: int = BULK_BATCH) -> BulkTimes:
    """Enqueue a bulk of jobs and drain it: reserve a batch, then settle it and reserve the next in one call."""
    queue = f"demo-{new_id()[-6:]}"
    new = [NewJob("bulk.noop", b"{}", queue) for _ in range(jobs)]
    began = time.perf_counter()
    driver.enqueue(new)
    enqueued = time.perf_counter()
    taken: Sequence[LeasedJob] = driver.reserve(queue, limit=batch, owner="carol")
    while taken:
        acks = [Settlement.ack(item.job.id, item.lease.token) for item in taken]
        taken = driver.settle_and_reserve(acks, queue, limit=batch, owner="carol")[1]
    drained = time.perf_counter()
    return BulkTimes(jobs, enqueued - began, drained - enqueued)

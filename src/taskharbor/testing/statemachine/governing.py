"""Limits and fair shares in the state machine: rules that set and lift them, and what must hold whatever they are."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from taskharbor.core.contract import Driver
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Job, Settlement, Status
from taskharbor.testing.statemachine import strategies as draw
from taskharbor.testing.statemachine.pair import Pair


class GoverningRules(RuleBasedStateMachine):
    driver: Driver
    pair: Pair
    now: datetime
    governed = False
    """Whether any limit was ever set, or any queue ever fair."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def jobs(self) -> list[Job]:
        raise NotImplementedError

    @rule(limit=draw.limits)
    def set_limit(self, limit: Limit) -> None:
        self.governed = True
        self.pair.same(lambda side: side.driver.set_limit(limit, now=self.now))

    @rule(limit=draw.limits)
    def drop_limit(self, limit: Limit) -> None:
        self.pair.same(lambda side: side.driver.drop_limit(*limit.key, now=self.now))

    @rule(queue=draw.queues, fair=st.booleans(), weights=st.sampled_from([{}, {"Default": 2.0}, {"default": 0.3}]))
    def set_fair(self, queue: str, fair: bool, weights: dict[str, float]) -> None:
        self.governed = True
        self.pair.same(lambda side: side.driver.set_fair(queue, fair, weights if fair else None, now=self.now))

    @rule(queues=draw.queue_sets)
    def look_again(self, queues: list[str]) -> None:
        self.pair.same(lambda side: side.driver.look_again_at(queues))
        self.pair.same(lambda side: side.driver.get_limits())

    @invariant()
    def whatever_was_let_through_had_room(self) -> None:
        """A limit may be lowered below what runs; but nothing new starts in a bucket that is full then."""
        limits = self.pair.memory.driver.get_limits()
        running = [
            job
            for job in self.jobs()
            if job.status is Status.INFLIGHT and job.lease_expires_at is not None and job.lease_expires_at > self.now
        ]
        tokens = {job.lease_token for job in running if job.lease_token is not None}
        for limit in limits:
            counts = Counter(limit.bucket(job) for job in running)
            for job in running:
                bucket = limit.bucket(job)
                if job.lease_token not in self._seen and bucket is not None and limit.concurrency is not None:
                    assert counts[bucket] <= limit.concurrency, f"{counts[bucket]} run in {bucket}"
        self._seen |= tokens

    def nothing_is_stuck(self) -> None:
        """Once nothing holds them back, every job that is ready can be run."""
        if not self.governed:
            return
        driver: Any = self.driver
        later = self.now + timedelta(days=2)
        for limit in driver.get_limits():
            driver.drop_limit(*limit.key, now=later)
        for queue in draw.QUEUES:
            driver.resume(queue)
        while leased := driver.reserve(list(draw.QUEUES), now=later, limit=100):
            driver.settle([Settlement.ack(item.job.id, item.lease.token) for item in leased], now=later)
        assert driver.counts()["ready"] == 0, "a job is ready, but no claim finds it"

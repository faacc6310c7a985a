"""A store of its own for a test: whatever the application enqueues stays in the test, and in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from taskharbor.app.harbor import Harbor
from taskharbor.core.contract import Answers, Driver
from taskharbor.core.intake import Batch
from taskharbor.core.model import Status
from taskharbor.core.retry import Backoff
from taskharbor.drivers.memory import MemoryDriver

AT_ONCE: Final = Backoff(base=0, jitter="none")


class PrivateDriver(MemoryDriver):
    """Memory that takes any `connection` and makes no use of it: code under test may pass its own."""

    def _enqueue_with(self, connection: Any, batch: Batch) -> Answers:
        return self._enqueue(batch)


@contextmanager
def in_memory(harbor: Harbor) -> Iterator[Driver]:
    """Inside the block the harbor works on an empty store in memory, and its own is neither opened nor touched.

    A `connection` given to enqueue is accepted and not used: the job is there at once. As a fixture:

        @pytest.fixture(autouse=True)
        def jobs():
            with in_memory(harbor):
                yield
    """
    with PrivateDriver(limits=harbor._store.limits) as driver, harbor._store.exchanged(driver):
        yield driver


def drain(harbor: Harbor, *, rounds: int = 100, **options: Any) -> dict[str, int]:
    """Run what is queued, and what that enqueues in turn, until nothing is left that is due; returns how many jobs
    the store has in each status. A job that fails is tried again without waiting. Jobs for later stay where they are.
    `options` are those of `harbor.worker`. What the worker logs goes to the handlers that there are, and nowhere
    without any."""
    options.setdefault("fleet", False)
    with _no_waiting(harbor), _quiet():
        for _ in range(rounds):
            queues = busy_queues(harbor.driver)
            if not queues:
                break
            before = harbor.driver.counts()
            harbor.worker(queues, **options).drain()
            if harbor.driver.counts() == before:
                break  # what is left has no handler here, or is not due
    return dict(harbor.driver.counts())


@contextmanager
def _no_waiting(harbor: Harbor) -> Iterator[None]:
    policies = {name: task.retry for name, task in harbor.tasks.items()}
    usual, harbor.backoff = harbor.backoff, AT_ONCE
    for task in harbor.tasks.values():
        task.retry = None
    try:
        yield
    finally:
        harbor.backoff = usual
        for name, policy in policies.items():
            harbor.tasks[name].retry = policy


@contextmanager
def _quiet() -> Iterator[None]:
    """Without any handler, Python prints warnings to standard error; that a job fails is what many tests are about."""
    logger, silent = logging.getLogger("taskharbor"), logging.NullHandler()
    logger.addHandler(silent)
    try:
        yield
    finally:
        logger.removeHandler(silent)


def busy_queues(driver: Driver) -> list[str]:
    """The queues that have something waiting, whichever they are: a worker alone looks at those that tasks name."""
    return [name for name, counts in driver.counts().queues.items() if counts[Status.READY]]

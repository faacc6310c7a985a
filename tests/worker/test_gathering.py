"""How batches are filled: from what claims bring, without hoarding, and at no cost to those who have none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from taskharbor import Batch, Harbor
from taskharbor.core.model import LeasedJob
from taskharbor.worker.batching import BatchRun
from taskharbor.worker.gathering import FILL_S, Gatherer
from taskharbor.worker.lane import Lane

LEASE_S = 30.0


class Site:
    """A lane of four slots, its gatherer, and a clock that stands still."""

    def __init__(self, harbor: Harbor) -> None:
        self.now = 100.0
        self.lane = Lane("default", 4, 500, monotonic=lambda: self.now)
        self.gatherer = self.lane.gatherer = Gatherer(self.lane, harbor.tasks, monotonic=lambda: self.now)
        self._driver = harbor.driver

    def look(self, asked: int) -> int:
        """A claimer asks for so many; returns how many plain jobs came with the others."""
        leased: list[LeasedJob] = self._driver.reserve("default", limit=asked)
        plain = self.gatherer.take(self.gatherer.hold(leased, self.now, LEASE_S))
        self.gatherer.looked(leased, asked)
        self.gatherer.send()
        return len(plain)

    def in_line(self) -> list[int]:
        return [len(run.members) for run in self.lane.ready if isinstance(run, BatchRun)]

    def begin(self) -> None:
        run = self.lane.ready.popleft()
        assert isinstance(run, BatchRun)
        run.close()


@pytest.fixture
def make() -> Callable[..., Site]:
    def made(*, plain: int = 0, batched: int = 0, **options: object) -> Site:
        harbor = Harbor("memory://")

        @harbor.task(batch=100, **options)  # type: ignore[call-overload]
        def index(batch: Batch[dict[str, int]]) -> None: ...

        @harbor.task
        def other() -> None: ...

        around = [other.new_job() for _ in range(plain // 2)]
        harbor.driver.enqueue([*around, *(index.new_job(n=n) for n in range(batched)), *around])
        return Site(harbor)

    return made


def test_an_application_without_batch_tasks_has_nothing_to_do_with_batches() -> None:
    harbor = Harbor("memory://")
    harbor.task(name="plain")(print_nothing)
    assert Gatherer.for_lane(Lane("default", 4, 500), harbor.tasks) is None


def print_nothing() -> None: ...


def test_a_backlog_is_asked_for_in_growing_claims_until_a_batch_is_full(make: Callable[..., Site]) -> None:
    site = make(batched=1_000)
    asked = []
    while site.in_line() != [100]:
        asked.append(site.lane.room())
        site.look(asked[-1])
    assert asked == [4, 12, 28, 60]
    assert site.in_line() == [100]


def test_a_full_batch_that_waits_is_enough(make: Callable[..., Site]) -> None:
    site = make(batched=1_000)
    while site.in_line() != [100]:
        site.look(site.lane.room())
    site.look(site.lane.room())
    waiting = site.gatherer._filling[0]
    assert site.gatherer.wants() <= 100 - len(waiting.members)


def test_a_batch_goes_as_soon_as_the_store_has_no_more(make: Callable[..., Site]) -> None:
    site = make(batched=10)
    site.look(4)
    assert site.in_line() == []
    site.look(12)
    assert site.in_line() == [10]
    assert site.gatherer.wait_s() > 1e6


def test_a_batch_among_plain_jobs_does_not_wait_for_long_and_hoards_none(make: Callable[..., Site]) -> None:
    site = make(batched=3, plain=200)
    site.look(110)
    site.look(4)
    assert site.gatherer.wants() == 0
    assert site.in_line() == []
    assert site.gatherer.wait_s() == pytest.approx(FILL_S)
    site.now += FILL_S
    site.gatherer.send()
    assert site.in_line() == [3]


def test_a_batch_in_line_may_be_joined_until_a_slot_begins_it(make: Callable[..., Site]) -> None:
    site = make(batched=10)
    site.look(4)
    site.now += FILL_S
    site.gatherer.send()
    assert site.in_line() == [4]
    site.look(4)
    assert site.in_line() == [8]
    site.begin()
    site.look(4)
    assert site.in_line() == [2]


def test_what_is_taken_back_is_the_jobs_and_nobody_joins_them_any_more(make: Callable[..., Site]) -> None:
    site = make(batched=10, batch_wait=5)
    site.look(6)
    assert len(site.gatherer.give_up()) == 6
    site.look(3)
    site.now += 5
    site.gatherer.send()
    assert site.in_line() == [3]
    assert len(site.lane.take_back()) == 3
    site.look(3)
    site.gatherer.send(no_more=True)
    assert site.in_line() == [1]

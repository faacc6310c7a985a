"""Listening: hints that there may be work. They may be wrong and may be missed, but they never do harm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, ClassVar, Final

from taskharbor.core.contract import Driver, Listener
from taskharbor.core.fleet import Worker
from taskharbor.testing.helpers import new_job

PATIENCE_S: Final = 20.0
SOON_S: Final = 5.0
"""Much longer than it should ever take, and much less than the time the wait was given."""


def register(driver: Driver) -> None:
    """What a worker does before it listens. A store may send no hints while there are no workers."""
    driver.heartbeat(Worker("worker-1"))


def waits(listener: Listener, meanwhile: Callable[[], Any]) -> tuple[bool, float]:
    """Wait for a long time in another thread and do something `meanwhile`; the answer, and how long it took."""
    answers: list[bool] = []
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        answers.append(listener.wait(PATIENCE_S))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    begun.wait()
    time.sleep(0.02)  # so that it is waiting indeed
    start = time.monotonic()
    meanwhile()
    thread.join(2 * PATIENCE_S)
    assert answers, "the wait did not end, or raised"
    return answers[0], time.monotonic() - start


class ListeningContract:
    """`listen`. Set `hears_of_new_jobs` to False for a store that has no way to hear of them and does not poll."""

    hears_of_new_jobs: ClassVar[bool] = True

    def hears(self, listener: Listener, meanwhile: Callable[[], Any]) -> None:
        """The wait ends soon after what is done `meanwhile`."""
        if not self.hears_of_new_jobs:
            meanwhile()
            assert listener.wait(0.01) in (True, False)
            return
        heard, seconds = waits(listener, meanwhile)
        assert heard
        assert seconds < SOON_S

    def test_a_new_job_ends_a_wait(self, driver: Driver) -> None:
        register(driver)
        with closing(driver.listen("mail")) as listener:
            self.hears(listener, lambda: driver.enqueue([new_job(queue="mail")]))

    def test_new_jobs_are_heard_of_again_and_again(self, driver: Driver) -> None:
        register(driver)
        with closing(driver.listen("mail")) as listener:
            for _ in range(3):
                self.hears(listener, lambda: driver.enqueue([new_job(queue="mail")]))
                driver.reserve("mail", limit=10)

    def test_jobs_of_every_named_queue_are_heard_of(self, driver: Driver) -> None:
        register(driver)
        for queue in ("mail", "Mail", "sm's \N{SNOWMAN}"):
            with closing(driver.listen(["other", "mail", "Mail", "sm's \N{SNOWMAN}"])) as listener:
                self.hears(listener, lambda queue=queue: driver.enqueue([new_job(queue=queue)]))  # type: ignore[misc]

    def test_many_new_jobs_are_heard_of_like_one(self, driver: Driver) -> None:
        register(driver)
        with closing(driver.listen("mail")) as listener:
            self.hears(listener, lambda: driver.enqueue([new_job(queue="mail") for _ in range(2_500)]))

    def test_a_job_that_came_before_the_wait_is_heard_of_too(self, driver: Driver) -> None:
        register(driver)
        with closing(driver.listen("mail")) as listener:
            driver.enqueue([new_job(queue="mail")])
            self.hears(listener, lambda: None)

    def test_everybody_who_listens_hears_of_a_new_job(self, driver: Driver) -> None:
        register(driver)
        with closing(driver.listen("mail")) as one, closing(driver.listen(["sms", "mail"])) as other:
            driver.enqueue([new_job(queue="mail")])
            self.hears(one, lambda: None)
            self.hears(other, lambda: None)

    def test_a_wait_ends_when_its_time_is_over(self, driver: Driver) -> None:
        with closing(driver.listen("mail")) as listener:
            for seconds in (0.05, 0, -1):
                start = time.monotonic()
                heard = listener.wait(seconds)
                passed = time.monotonic() - start
                assert passed < SOON_S
                assert heard or passed >= seconds

    def test_a_wait_may_be_given_any_time(self, driver: Driver) -> None:
        with closing(driver.listen("mail")) as listener:
            for seconds in (3e6, 1e300, float("inf")):
                listener.wake()
                assert listener.wait(seconds)
            start = time.monotonic()
            listener.wait(float("nan"))
            assert time.monotonic() - start < SOON_S

    def test_waiting_can_be_kept_up(self, driver: Driver) -> None:
        # Whatever a listener does between looks: a wait is not the place where it goes wrong.
        with closing(driver.listen("mail")) as listener:
            for _ in range(50):
                listener.wait(0.001)
            assert waits(listener, listener.wake)[0]

    def test_nothing_can_be_listened_to(self, driver: Driver) -> None:
        with closing(driver.listen([])) as listener:
            listener.wait(0.01)
            assert waits(listener, listener.wake)[0]

    def test_a_wake_from_another_thread_ends_a_wait_at_once(self, driver: Driver) -> None:
        with closing(driver.listen("mail")) as listener:
            for _ in range(3):
                heard, seconds = waits(listener, listener.wake)
                assert heard
                assert seconds < SOON_S

    def test_a_wake_before_the_wait_ends_the_next_one_at_once(self, driver: Driver) -> None:
        with closing(driver.listen("mail")) as listener:
            for _ in range(100_000):
                listener.wake()
            start = time.monotonic()
            assert listener.wait(PATIENCE_S)
            assert time.monotonic() - start < SOON_S

    def test_closing_a_listener_ends_a_wait(self, driver: Driver) -> None:
        listener = driver.listen("mail")
        _, seconds = waits(listener, listener.close)
        assert seconds < SOON_S

    def test_a_closed_listener_waits_no_more(self, driver: Driver) -> None:
        listener = driver.listen("mail")
        listener.close()
        listener.close()
        listener.wake()
        start = time.monotonic()
        assert not listener.wait(PATIENCE_S)
        assert time.monotonic() - start < SOON_S

    def test_closing_one_listener_leaves_the_others_alone(self, driver: Driver) -> None:
        register(driver)
        with closing(driver.listen("mail")) as listener:
            driver.listen("mail").close()
            self.hears(listener, lambda: driver.enqueue([new_job(queue="mail")]))

    def test_closing_the_driver_closes_its_listeners(self, driver: Driver) -> None:
        listener = driver.listen("mail")
        _, seconds = waits(listener, driver.close)
        assert seconds < SOON_S
        assert not listener.wait(PATIENCE_S)
        listener.close()

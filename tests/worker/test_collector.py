"""How a worker treats Python's collector of cycles, which belongs to the whole process."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator

import pytest

from taskharbor import Harbor
from taskharbor.worker.collector import HEAVY, LOOK_S, MANY, collector, patient_collector


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collections_are_rarer_while_a_worker_runs_and_as_before_when_it_has_ended() -> None:
    gc.set_threshold(700, 10, 10)
    seen: list[tuple[int, int, int]] = []
    harbor = Harbor("memory://")

    @harbor.task
    def look() -> None:
        seen.append(gc.get_threshold())

    look.enqueue()
    harbor.worker().drain()
    assert seen == [(MANY, 10, 10)]
    assert gc.get_threshold() == (700, 10, 10)


def test_the_last_of_several_workers_puts_it_back() -> None:
    gc.set_threshold(700, 10, 10)
    with patient_collector():
        with patient_collector():
            pass
        assert gc.get_threshold()[0] == MANY
    assert gc.get_threshold()[0] == 700


@pytest.mark.parametrize("chosen", [(0, 10, 10), (MANY + 1, 5, 5)])
def test_who_has_switched_it_off_or_made_it_rarer_is_left_alone(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    with patient_collector():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


@pytest.mark.parametrize("chosen", [(1_234, 10, 10), (MANY, 20, 20)])
def test_what_a_handler_sets_stays(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(700, 10, 10)
    with patient_collector():
        gc.set_threshold(*chosen)
    assert gc.get_threshold() == chosen


class Loop:
    """Nothing but a cycle."""

    def __init__(self) -> None:
        self.me = self


def test_cycles_are_found_as_soon_as_many_bytes_have_come_in_and_in_time() -> None:
    gc.set_threshold(700, 10, 10)
    for told in (lambda: collector.note_bytes(HEAVY), collector.note_time):
        with patient_collector():
            collector._looked = -LOOK_S
            left = weakref.ref(Loop())
            assert left() is not None
            told()
            assert left() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on Windows")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_has_the_threshold_of_before() -> None:
    gc.set_threshold(700, 10, 10)
    with patient_collector():
        child = os.fork()
        if child == 0:
            before = gc.get_threshold()
            collector.go_on()  # as when the child leaves the block
            with patient_collector():
                os._exit((before, gc.get_threshold()[0]) != ((700, 10, 10), MANY))
        assert os.waitpid(child, 0)[1] == 0
        assert gc.get_threshold()[0] == MANY

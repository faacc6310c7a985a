"""Every test is done once, by a process that is made for it."""

from __future__ import annotations

import random
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
from tests.scheduling import SPARK, FewSparks


class Process:
    """One of a test run, as xdist knows it."""

    gateway = SimpleNamespace(id="a process")

    def __init__(self) -> None:
        self.given: list[int] = []
        self.done: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.given.extend(indices)

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def can_go_on(self) -> bool:
        """It begins a test only when it knows the next one, or that there is none."""
        return len(self.given) >= (1 if self.shutting_down else 2)


class Options:
    def __init__(self, processes: int) -> None:
        self.tx = ["popen"] * processes

    def getvalue(self, name: str) -> Any:
        return getattr(self, name)

    def getoption(self, name: str) -> None:
        return None


def modules(**sizes: int) -> list[str]:
    return [f"{name.replace('__', '/')}.py::test_{n}" for name, size in sizes.items() for n in range(size)]


def run(names: list[str], count: int, rng: random.Random) -> list[Process]:
    scheduler = FewSparks(Options(count))  # type: ignore[arg-type]
    processes: list[Any] = [Process() for _ in range(count)]
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, names)
    scheduler.schedule()
    while able := [process for process in processes if process.can_go_on]:
        process = rng.choice(able)
        index = process.given.pop(0)
        process.done.append(index)
        scheduler.mark_test_complete(process, index)
    assert scheduler.tests_finished and not scheduler.has_pending
    assert all(process.shutting_down and not process.given for process in processes)
    assert sorted(index for process in processes for index in process.done) == list(range(len(names)))
    return processes


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("tests", [0, 1, 2, 7, 200])
def test_every_test_is_done_once_and_every_process_ends(count: int, tests: int, rng: random.Random) -> None:
    run(modules(tests__pipeline__test_a=tests // 2, tests__unit__test_b=tests - tests // 2), count, rng)


def test_half_of_the_processes_have_no_spark_while_there_are_other_tests(rng: random.Random) -> None:
    names = modules(tests__pipeline__test_a=20, tests__unit__test_b=900)
    for process in run(names, 4, rng)[2:]:
        assert process.done and not any(names[index].startswith(SPARK) for index in process.done)


def test_tests_of_a_module_stay_together(rng: random.Random) -> None:
    names = modules(**{f"tests__web__test_{n}": rng.randrange(1, 25) for n in range(40)})
    for process in run(names, 3, rng):
        for module, tests in groupby((names[index] for index in process.done), lambda name: name.partition("::")[0]):
            assert list(tests) == [name for name in names if name.startswith(f"{module}::")]

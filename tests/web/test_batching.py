"""Many callers, one call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from taskharbor.core.errors import InvalidInput, StoreUnavailable
from taskharbor.web.batching import Batcher, one_by_one
from taskharbor.web.problems import Problem
from taskharbor.web.threads import Threads


def refuse_seven(numbers: Sequence[int]) -> list[int]:
    if 7 in numbers:
        raise InvalidInput("not seven")
    return [number * 10 for number in numbers]


def test_what_comes_while_a_call_is_under_way_goes_into_the_next() -> None:
    calls: list[list[int]] = []
    begun, go = threading.Event(), threading.Event()

    def slow(numbers: Sequence[int]) -> list[int | Exception]:
        calls.append(list(numbers))
        begun.set()
        go.wait(10)
        return [number * 10 for number in numbers]

    async def run() -> list[int]:
        threads = Threads(2)
        batcher: Batcher[int, int] = Batcher(slow, threads, limit=3)
        first = asyncio.create_task(batcher.submit(0))
        await asyncio.to_thread(begun.wait, 10)
        rest = [asyncio.create_task(batcher.submit(number)) for number in range(1, 6)]
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(first, *rest)
        threads.close()
        return found

    assert asyncio.run(run()) == [0, 10, 20, 30, 40, 50]
    assert calls == [[0], [1, 2, 3], [4, 5]]


def test_a_caller_that_comes_back_at_once_is_not_forgotten() -> None:
    async def run() -> list[list[int]]:
        threads = Threads(2)
        batcher: Batcher[int, int] = Batcher(lambda numbers: [number * 10 for number in numbers], threads)

        async def again_and_again() -> list[int]:
            return [await batcher.submit(number) for number in range(100)]

        found = await asyncio.wait_for(asyncio.gather(*(again_and_again() for _ in range(8))), 20)
        threads.close()
        return found

    assert asyncio.run(run()) == [[number * 10 for number in range(100)]] * 8


def test_a_server_that_stops_answers_those_who_wait() -> None:
    async def run() -> None:
        threads = Threads(1)
        batcher: Batcher[int, int] = Batcher(list, threads)
        threads.close()
        with pytest.raises(Problem):
            await asyncio.wait_for(batcher.submit(1), 20)

    asyncio.run(run())


def test_one_bad_item_harms_no_other_and_a_caller_that_left_harms_nobody() -> None:
    async def run() -> list[int | BaseException]:
        threads = Threads(1)
        batcher: Batcher[int, int] = Batcher(one_by_one(refuse_seven, lambda _: False), threads)
        tasks = [asyncio.create_task(batcher.submit(number)) for number in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        threads.close()
        return found

    found = asyncio.run(run())
    assert [found[number] for number in (0, 1, 2, 4, 5, 6, 8, 9)] == [0, 10, 20, 40, 50, 60, 80, 90]
    assert isinstance(found[7], InvalidInput)
    assert isinstance(found[3], asyncio.CancelledError)


def test_an_error_that_concerns_all_is_not_tried_again_for_each() -> None:
    calls = 0

    def away(numbers: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        raise StoreUnavailable("away")

    answers = one_by_one(away, lambda error: isinstance(error, StoreUnavailable))(range(100))
    assert (calls, len(answers)) == (1, 100)


@pytest.mark.parametrize("bad", [0, 1, 7, 12, 15])
def test_with_stop_the_answers_end_with_the_first_error(bad: int) -> None:
    tried: list[int] = []

    def refuse(numbers: Sequence[int]) -> list[int]:
        if bad in numbers:
            raise InvalidInput("no")
        tried.extend(numbers)
        return list(numbers)

    answers = one_by_one(refuse, lambda _: False, stop=True)(range(16))
    assert answers[:-1] == list(range(bad))
    assert isinstance(answers[-1], InvalidInput)
    assert tried == list(range(bad))

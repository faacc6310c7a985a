"""Many requests, one call of the store: what comes in while a call is under way goes into the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from taskharbor.web.problems import Problem
from taskharbor.web.threads import Threads

In = TypeVar("In")
Out = TypeVar("Out")
MOST_WAITING: Final = 10_000


class Batcher(Generic[In, Out]):
    """`function` gets the items of several callers and gives one answer, or one error, for each.

    An item is never given to a call that began before it came: whoever asks is told what was true afterwards.
    """

    def __init__(
        self,
        function: Callable[[Sequence[In]], Sequence[Out | Exception]],
        threads: Threads,
        *,
        limit: int = 500,
        parallel: int = 1,
    ) -> None:
        self._function = function
        self._threads = threads
        self._limit = limit
        self._parallel = parallel
        self._waiting: deque[tuple[In, asyncio.Future[Out]]] = deque()
        self._under_way = 0
        self._is_called = False

    async def submit(self, item: In) -> Out:
        if len(self._waiting) >= MOST_WAITING:
            raise Problem("busy", "too many requests wait for the store: try again later")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Out] = loop.create_future()
        self._waiting.append((item, future))
        if not self._is_called and self._under_way < self._parallel:
            # In the next turn of the loop, so that all who come in this one go together.
            self._is_called = True
            loop.call_soon(self._call)
        return await future

    def _call(self) -> None:
        self._is_called = False
        while self._waiting and self._under_way < self._parallel:
            batch = [self._waiting.popleft() for _ in range(min(self._limit, len(self._waiting)))]
            self._under_way += 1
            try:
                call = self._threads.begin(self._function, [item for item, _ in batch])
            except RuntimeError:  # the threads are gone
                call = asyncio.get_running_loop().create_future()
                call.cancel()
            call.add_done_callback(partial(self._answer, batch))

    def _answer(
        self, batch: list[tuple[In, asyncio.Future[Out]]], call: asyncio.Future[Sequence[Out | Exception]]
    ) -> None:
        self._under_way -= 1
        answers: Sequence[Out | Exception]
        if call.cancelled():
            answers = [Problem("busy", "the server is stopping")] * len(batch)
        elif (error := call.exception()) is not None:  # whatever it is, it is the answer to each of them
            answers = [error if isinstance(error, Exception) else RuntimeError(str(error))] * len(batch)
        else:
            answers = call.result()
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():  # its caller has gone
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._call()


def one_by_one(
    function: Callable[[Sequence[In]], Sequence[Out]], is_shared: Callable[[Exception], bool], *, stop: bool = False
) -> Callable[[Sequence[In]], Sequence[Out | Exception]]:
    """`function`, which takes all or nothing, made to answer for each: a batch that it refuses is halved until the
    one item is alone that it refuses. An error that `is_shared` (the store is away) is the answer to all at once.
    With `stop`, the answers end with the first error, and nothing behind it was tried."""

    def each(items: Sequence[In]) -> Sequence[Out | Exception]:
        try:
            return function(items)
        except Exception as error:
            if len(items) == 1 or is_shared(error):
                return [error] * len(items)
        middle = len(items) // 2
        first = each(items[:middle])
        if stop and isinstance(first[-1], Exception):
            return first
        return [*first, *each(items[middle:])]

    return each

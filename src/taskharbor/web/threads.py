"""Calls of the store, which wait, kept away from the event loop, which must not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """So many threads and no more; a call that finds none free waits for one."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="taskharbor-web")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.begin(function, *args, **kwargs)

    def begin(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """The same for callers that do not wait. RuntimeError once it is closed."""
        call: Callable[..., Any] = partial(function, *args, **kwargs) if kwargs else function
        return asyncio.get_running_loop().run_in_executor(self._pool, call, *(() if kwargs else args))

    def close(self) -> None:
        """What has begun is finished; nothing else begins."""
        self._pool.shutdown(wait=True, cancel_futures=True)

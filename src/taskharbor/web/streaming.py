"""Server-sent events: answers that go on until the client leaves or the server stops."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from taskharbor.web.problems import Problem

MOST_STREAMS: Final = 200
"""Open at once in one process."""
KEEP_ALIVE_S: Final = 15.0
MEDIA_TYPE: Final = "text/event-stream"
STILL_HERE: Final = b": still here\n\n"
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""The second keeps nginx from holding events back."""


def event(data: str, *, name: str | None = None, id: str | None = None) -> bytes:
    """One event. The data may have many lines; a name or an id may not."""
    lines = [f"id: {id}"] if id is not None else []
    if name is not None:
        lines.append(f"event: {name}")
    lines.extend(f"data: {line}" for line in data.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return ("\n".join(lines) + "\n\n").encode()


def mark(id: str) -> bytes:
    """No event, but a client that comes back will ask for what is behind this id."""
    return f"id: {id}\n\n".encode()


class Streams:
    """Counts the streams of this process, and ends them when it stops."""

    def __init__(self, stopping: asyncio.Event, limit: int = MOST_STREAMS) -> None:
        self.stopping = stopping
        self._limit = limit
        self.count = 0

    def check(self) -> None:
        if self.stopping.is_set():
            raise Problem("busy", "the server is stopping")
        if self.count >= self._limit:
            raise Problem("busy", f"{self._limit} streams are open already: close some, or try again later")

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


def stream(request: Request, source: AsyncIterator[bytes]) -> Response:
    """The answer that sends what `source` gives. A problem if too many are open."""
    streams: Streams = request.app.state.event_streams
    streams.check()
    return _EventStream(streams, source)


class _EventStream(Response):
    media_type = MEDIA_TYPE

    def __init__(self, streams: Streams, source: AsyncIterator[bytes]) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._streams = streams
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.one_more():
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            sending = asyncio.create_task(self._send_all(send))
            leaving = asyncio.create_task(_left(receive))
            stopping = asyncio.create_task(self._streams.stopping.wait())
            tasks = {sending, leaving, stopping}
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if not sending.cancelled() and (error := sending.exception()) is not None:
                raise error
            if leaving.cancelled():
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._source) as source:  # type: ignore[type-var]
            async for chunk in source:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def install(app: FastAPI) -> None:
    app.state.event_streams = Streams(app.state.stopping)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """A server waits for its clients before it ends the application, and a stream would never let it: so the signal
    itself has to end the streams. The server's own handler is called after ours."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Event = app.state.stopping

    def chained(previous: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], Any]:
        def handler(number: int, frame: FrameType | None) -> Any:
            loop.call_soon_threadsafe(stopping.set)
            return previous(number, frame)

        return handler

    replaced: dict[signal.Signals, tuple[Any, Any]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            previous = signal.getsignal(number)
            if callable(previous):
                handler = chained(previous)
                signal.signal(number, handler)
                replaced[number] = handler, previous
    try:
        yield
    finally:
        for number, (handler, previous) in replaced.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, previous)

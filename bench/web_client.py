"""A cheap HTTP client, because it has to share two cores with the server and the store: plain protocols with requests
that are built once. Runs in a child, which is told on its command line what to do."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

from bench.child import tell, told_to_go

LONGEST_S = 120.0


class Stop(Exception):
    """An answer was not what it should be."""


class Talk(asyncio.Protocol):
    """One connection that sends the same request again as soon as it is answered, while there is work."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._buffer = b""
        self._began = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._run.connected()

    def connection_lost(self, exc: Exception | None) -> None:
        self._run.failed("the server closed the connection")

    def send(self) -> None:
        assert self._transport is not None
        if self._run.left > 0:
            self._run.left -= 1
            self._began = time.perf_counter()
            self._transport.write(self._run.request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        if not self._buffer.startswith(self._run.wanted):
            self._run.failed(self._buffer[:300].decode("latin-1"))
            return
        at = self._buffer.lower().find(b"content-length:")
        length = int(self._buffer[at + 15 : self._buffer.find(b"\r\n", at)])
        if len(self._buffer) >= head + 4 + length:
            self._run.answered(time.perf_counter() - self._began, self._buffer[head + 4 :])
            self._buffer = b""
            self.send()


class Run:
    def __init__(self, request: bytes, wanted: bytes, count: int, connections: int) -> None:
        self.request = request
        self.wanted = wanted
        self.left = count
        self._count = count
        self._connections = connections
        self._up = 0
        self.taken: list[float] = []
        self.last = b""
        self._all_up = asyncio.get_running_loop().create_future()
        self._done = asyncio.get_running_loop().create_future()

    def connected(self) -> None:
        self._up += 1
        if self._up == self._connections:
            self._all_up.set_result(None)

    def failed(self, why: str) -> None:
        for future in (self._all_up, self._done):
            if not future.done():
                future.set_exception(Stop(why))

    def answered(self, seconds: float, body: bytes) -> None:
        self.taken.append(seconds)
        self.last = body
        if len(self.taken) == self._count and not self._done.done():
            self._done.set_result(None)

    async def go(self, port: int) -> float:
        loop = asyncio.get_running_loop()
        talks = [
            (await loop.create_connection(lambda: Talk(self), "127.0.0.1", port))[1] for _ in range(self._connections)
        ]
        await asyncio.wait_for(self._all_up, LONGEST_S)
        told_to_go()
        began = time.perf_counter()
        for talk in talks:
            talk.send()
        await asyncio.wait_for(self._done, LONGEST_S)
        return time.perf_counter() - began


async def main(port: int, path: str, wanted: str, count: int, connections: int) -> None:
    # The request stands in a file: a token has no place on a command line.
    with open(path, "rb") as file:  # noqa: ASYNC230, PTH123 - before anything is on the clock
        request = file.read()
    run = Run(request, f"HTTP/1.1 {wanted}".encode(), count, connections)
    seconds = await run.go(port)
    try:
        last = json.loads(run.last)
    except ValueError:
        last = None
    tell(count=count, seconds=seconds, taken=sorted(run.taken), last=last)


if __name__ == "__main__":
    import uvloop

    words = sys.argv[1:]
    uvloop.run(main(int(words[0]), words[1], words[2], int(words[3]), int(words[4])))

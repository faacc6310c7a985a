"""One process of a server: listens until it is told to stop, and then ends streams and waiting requests first."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from taskharbor.core.errors import InvalidInput
from taskharbor.web.connections import Connection
from taskharbor.web.settings import Settings

GRACE_S: Final = 10
"""Time for requests that are under way to end."""
CLOSING_S: Final = 5
"""Then for the store to be closed; and for all of it after the second signal:"""
HURRY_S: Final = 1
KEEP_ALIVE_S: Final = 75
"""Longer than proxies keep a connection that nobody uses, so that they, and not we, are the ones to close it."""
BACKLOG: Final = 2048

log = logging.getLogger("taskharbor.web")


class Server(uvicorn.Server):
    """Stops on the first signal, in good order, and at once on the second; then the process goes on by itself."""

    def __init__(self, app: FastAPI, on_start: Callable[[], None] | None = None) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,  # ours has no queries in it
            server_header=False,
            lifespan="on",
            ws="none",
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._app = app
        self._on_start = on_start
        self.has_parent = False
        self.is_all_there_is = False
        """Whether the process is for nothing else, and ends with the server whatever holds it."""
        self._is_watched = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._on_start is not None and self.started:
            self._on_start()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            # Else the signal would be raised once more, and end the process as if nobody had heard it.
            self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A process with a parent is told by it when to hurry: a signal may reach it twice for one.
        if self.should_exit and not self.has_parent:
            self.force_exit = True
        self.stop()

    def stop(self) -> None:
        """Safe from any thread, and from a signal's handler; as often as one likes."""
        self.should_exit = True
        if self.is_all_there_is and not self._is_watched:
            self._is_watched = True
            threading.Thread(target=self._see_to_the_end, name="taskharbor-end", daemon=True).start()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._app.state.stopping.set)

    def hurry(self) -> None:
        self.stop()
        self.force_exit = True

    def _see_to_the_end(self) -> None:
        """A call of a store that does not answer cannot be broken off, and would keep the process for ever."""
        ends = time.monotonic() + GRACE_S + CLOSING_S
        while time.monotonic() < ends:
            time.sleep(0.1)
            if self.force_exit:
                ends = min(ends, time.monotonic() + HURRY_S)
        log.error("the store did not answer in time: ending without it")
        logging.shutdown()
        os._exit(1)


def listen(settings: Settings, *, share: bool = False, only_bind: bool = False) -> socket.socket:
    """A socket at the address of the settings. `share`: several processes have one each, and the system deals
    connections out among them. `only_bind`: keeps the address, and takes no connection."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol named: asyncio's own loop sets TCP_NODELAY only then, and answers would take 40 ms more.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.host, settings.port))
        if not only_bind:
            listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise InvalidInput(
            f"cannot listen on {settings.host} at port {settings.port}: {error}: choose another with --host and --port"
        ) from None
    return listening


def addresses(settings: Settings, port: int) -> list[str]:
    """Where a browser on this machine finds the server."""
    host = settings.host
    if host in ("0.0.0.0", "::"):  # noqa: S104 - to be told, not bound
        return [f"http://{name}:{port}" for name in dict.fromkeys(("localhost", socket.gethostname()))]
    return [f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"]


def log_like_ours() -> None:
    """What the HTTP server has to say goes where our own lines go."""
    theirs = logging.getLogger("uvicorn.error")
    theirs.setLevel(logging.WARNING)
    ours = logging.getLogger("taskharbor").handlers
    theirs.propagate = not ours  # without any, the root logger has them
    for handler in ours:
        theirs.addHandler(handler)


def run(server: Server, listening: socket.socket) -> int:
    """Serve until told to stop; the exit code."""
    log_like_ours()
    server.is_all_there_is = True
    try:
        server.run([listening])
    finally:
        listening.close()
    return 0

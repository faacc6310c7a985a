"""A real server on a port of its own, in a thread, and clients with tokens for it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import uvicorn

from taskharbor.core.contract import Driver
from taskharbor.core.tokens import ALL_TENANTS, Role, new_token
from taskharbor.web import Settings, create_app
from taskharbor.web.connections import Connection

# One for all clients: each would read the certificates of half the world for itself, to speak plain HTTP.
TRUST = httpx.create_ssl_context()


class Served:
    """A running server: `client(…)` makes HTTP clients, which are closed with it."""

    def __init__(self, driver: Driver, port: int, app: Any) -> None:
        self.driver = driver
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.app = app
        self._clients: list[httpx.Client] = []

    def secret(self, tenant: str = ALL_TENANTS, role: Role | str = Role.ADMIN, **options: Any) -> str:
        token, secret = new_token(f"{role} of {tenant}", tenant, role, self.driver.now(), **options)
        self.driver.add_token(token)
        return secret

    def client(self, tenant: str = ALL_TENANTS, role: Role | str = Role.ADMIN) -> httpx.Client:
        return self.with_token(self.secret(tenant, role))

    def with_token(self, secret: str | None) -> httpx.Client:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=TRUST)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


class _Server(uvicorn.Server):
    """Tells when it is up, and stops when it is told to, not at its next tick: there are hundreds of it."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app, http=Connection, log_config=None, access_log=False, lifespan="on", ws="none", loop="asyncio"
            )
        )
        self.is_up = threading.Event()
        self._stopping: asyncio.Event = app.state.stopping
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does, but without the tenth of a second that it always takes."""
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - nobody tells of their end
            await asyncio.sleep(0.002)
        await self.lifespan.shutdown()

    def stop(self) -> None:
        """From another thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)


@contextmanager
def served(driver: Driver, **options: Any) -> Iterator[Served]:
    """The application on this store. `options` are settings."""
    app = create_app(Settings(**{"url": "memory://", **options}), driver)
    # With the protocol named: asyncio sets TCP_NODELAY on such sockets alone, and every answer would take 40 ms more.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        port = listening.getsockname()[1]
        server = _Server(app)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
        thread.start()
        assert server.is_up.wait(20), "the server did not start"
        running = Served(driver, port, app)
        try:
            yield running
        finally:
            running.close()
            server.stop()
            thread.join(20)
            assert not thread.is_alive(), "the server did not stop"

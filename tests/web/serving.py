"""A real server on a port of its own, in a thread, and clients with tokens for it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from taskharbor.core.contract import Driver
from taskharbor.core.tokens import ALL_TENANTS, Role, new_token
from taskharbor.web import Settings, create_app
from taskharbor.web.connections import Connection


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
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def served(driver: Driver, **options: Any) -> Iterator[Served]:
    """The application on this store. `options` are settings."""
    app = create_app(Settings(**{"url": "memory://", **options}), driver)
    # With the protocol named: asyncio sets TCP_NODELAY on such sockets alone, and every answer would take 40 ms more.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            app, http=Connection, log_config=None, access_log=False, lifespan="on", ws="none", loop="asyncio"
        )
        started = threading.Event()

        class Telling(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                started.set()

        server = Telling(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
        thread.start()
        assert started.wait(20), "the server did not start"
        running = Served(driver, port, app)
        try:
            yield running
        finally:
            running.close()
            app.state.stopping.set()
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server did not stop"

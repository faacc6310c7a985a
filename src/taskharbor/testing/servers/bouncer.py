"""A real PgBouncer in transaction pooling mode, in front of a PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit, urlunsplit

from taskharbor.testing.servers import apt
from taskharbor.testing.servers.accounts import Account, unprivileged
from taskharbor.testing.servers.errors import ServerUnavailable
from taskharbor.testing.servers.local import HOST, LocalServer


def pgbouncer(postgres_url: str, *, pool_size: int = 5, install: bool = True) -> Bouncer:
    """A transaction pooler to use in a `with` statement; its `url` reaches the database of `postgres_url`.

    The pool is small, so that one client's statements really land on several server connections. The binary is
    installed with apt where we are root and `install` allows it. Raises ServerUnavailable.
    """
    binary = _find()
    if binary is None and install and apt.install("pgbouncer"):
        binary = _find()
    if binary is None:
        raise ServerUnavailable("no PgBouncer here: install pgbouncer")
    return Bouncer(unprivileged(["postgres"]), binary, postgres_url, pool_size)


class Bouncer(LocalServer):
    """PgBouncer with one pool."""

    name: ClassVar[str] = "pgbouncer"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    crash_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, account: Account, binary: Path, postgres_url: str, pool_size: int) -> None:
        super().__init__(account)
        self._binary = binary
        self._target = urlsplit(postgres_url)
        self._pool_size = pool_size
        self.user = unquote(self._target.username or "postgres")
        self.password = unquote(self._target.password or "")

    @property
    def url(self) -> str:
        login = self._target.netloc.rpartition("@")[0]
        return urlunsplit(self._target._replace(netloc=f"{login}@{HOST}:{self.port}"))

    def _prepare(self) -> None:
        self._write("users.txt", f"{_quoted(self.user)} {_quoted(self.password)}\n")

    def _command(self) -> list[str]:
        target = f"host={self._target.hostname or HOST} port={self._target.port or 5432}"
        lines = [
            "[databases]",
            f"* = {target}",
            "[pgbouncer]",
            f"listen_addr = {HOST}",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "pool_mode = transaction",
            f"default_pool_size = {self._pool_size}",
            "max_client_conn = 300",
            "auth_type = plain",
            f"auth_file = {self.directory / 'users.txt'}",
        ]
        return [str(self._binary), str(self._write("pgbouncer.ini", "\n".join(lines) + "\n"))]

    def _ready(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return self.running


def _find() -> Path | None:
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"))
    found = shutil.which("pgbouncer", path=places)
    return Path(found) if found else None


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'

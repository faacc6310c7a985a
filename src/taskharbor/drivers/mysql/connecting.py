"""Connecting: one attempt, of which every step together takes no longer than `connect_timeout`."""

from __future__ import annotations

import re
import socket
import struct
import time
from typing import Any, Final

import pymysql

from taskharbor.core.errors import StoreError
from taskharbor.drivers.mysql.address import Address
from taskharbor.drivers.mysql.errors import not_connected
from taskharbor.drivers.mysql.pool import Connection, discard
from taskharbor.drivers.mysql.values import conversion_table

LOCK_WAIT_S: Final = 10
SQL_MODE: Final = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_NO_SOCKET: Final = 2002
_NO_HOST: Final = 2003
_VERSION: Final = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)")
_unverified: Final[list[Any]] = []


def connect(address: Address) -> Connection:
    """A connection that is set up our way. What goes wrong is raised in our words, and so is not tried again here: who
    calls us knows better for how long to wait for a server that is away."""
    connection: Connected | None = None
    try:
        connection = Connected(
            **address.arguments, charset="utf8mb4", autocommit=True, conv=conversion_table(), defer_connect=True
        )
        connection.connect(connection.reach())
        _set_up(connection)
        connection.take_its_time()
    except BaseException as error:
        if connection is not None:
            discard(connection)
        # What is not MySQL sends what no message can be read from.
        if isinstance(error, pymysql.err.MySQLError | OSError | RuntimeError | struct.error | IndexError):
            raise not_connected(error, address.arguments["connect_timeout"]) from error
        raise
    return connection


def _set_up(connection: Connection) -> None:
    collation = _collation(connection.get_server_info())
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute(
            "SET SESSION collation_connection = %s, sql_mode = %s, time_zone = '+00:00', innodb_lock_wait_timeout = %s",
            (collation, SQL_MODE, LOCK_WAIT_S),
        )
        cursor.execute("SELECT @@max_allowed_packet")
        connection.taskharbor_max_packet = int(cursor.fetchone()[0])


class Connected(pymysql.connections.Connection):  # type: ignore[misc]
    """PyMySQL bounds only the way to the host by `connect_timeout`. It waits for the greeting and the login as long as
    for the answer to a statement, and for each piece of them anew: a port where nobody speaks would hold us for
    minutes. Here one moment bounds all of it, until the connection may take its time.

    Where the URL says nothing about certificates, PyMySQL encrypts if the server can, and verifies nothing. Yet for
    each connection it reads every certificate that this machine trusts, which takes longer than to connect: here, once.
    """

    _ready_by: float | None = None
    _statements_write_timeout: float | None = None

    def reach(self) -> socket.socket:
        """The way to the server. Each address of the host has the whole time, as with libpq."""
        if self.unix_socket:
            return self._reach_socket()
        failure: OSError | None = None
        try:
            places = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            places, failure = [], error
        for *_, place in places:
            self._begin()
            try:
                way = socket.create_connection((str(place[0]), int(place[1])), self.connect_timeout)
            except OSError as error:
                failure = error
                continue
            way.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            way.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return way
        raise pymysql.err.OperationalError(_NO_HOST, f"{self.host}, port {self.port}: {failure}") from failure

    def _reach_socket(self) -> socket.socket:
        self._begin()
        way = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        way.settimeout(self.connect_timeout)
        try:
            way.connect(self.unix_socket)
        except OSError as error:
            way.close()
            raise pymysql.err.OperationalError(_NO_SOCKET, f"{self.unix_socket}: {error}") from error
        self._secure = True
        return way

    def take_its_time(self) -> None:
        """From here on it is for statements, which `read_timeout` and `write_timeout` bound."""
        self._ready_by = None
        self._write_timeout = self._statements_write_timeout
        self._current_timeout = None  # what PyMySQL 1.2 believes that the socket has: it is to set it anew

    def _begin(self) -> None:
        if self._ready_by is None:
            self._statements_write_timeout = self._write_timeout
        self._ready_by = time.monotonic() + self.connect_timeout

    def _left_s(self) -> float:
        assert self._ready_by is not None
        left = self._ready_by - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def _read_bytes(self, num_bytes: int) -> bytes:
        if self._ready_by is None:
            read: bytes = super()._read_bytes(num_bytes)
            return read
        data = b""
        while len(data) < num_bytes:
            self._sock.settimeout(self._left_s())
            part = self._rfile.read1(num_bytes - len(data))  # what comes at once, be it a single byte
            if not part:
                raise ConnectionError("it hung up")
            data += part
        return data

    def _write_bytes(self, data: bytes) -> None:
        if self._ready_by is not None:
            self._write_timeout = self._left_s()  # the handshake of TLS that may follow is bounded by it too
        super()._write_bytes(data)

    def _create_ssl_ctx(self, options: Any) -> Any:
        if options:
            return super()._create_ssl_ctx(options)
        if not _unverified:
            _unverified.append(super()._create_ssl_ctx(options))
        return _unverified[0]


def _collation(server: str) -> str:
    """The collation of our text columns on this server; refuses servers that lack what we need."""
    found = _VERSION.match(server)
    version = tuple(int(part) for part in found.groups()) if found else (0,)
    mariadb = "mariadb" in server.lower()
    if version < ((10, 6) if mariadb else (8, 0, 17)):
        raise StoreError(f"this server is {server}: TaskHarbor needs MySQL 8.0.17 or MariaDB 10.6, or later")
    return "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"

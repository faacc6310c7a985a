"""Connecting: one attempt, in which nothing is waited for longer than `connect_timeout`."""

from __future__ import annotations

import re
import socket
import struct
from typing import Any, Final

import pymysql

from taskharbor.core.errors import StoreError
from taskharbor.drivers.mysql.address import Address
from taskharbor.drivers.mysql.errors import NO_SOCKET, not_connected
from taskharbor.drivers.mysql.pool import Connection, discard
from taskharbor.drivers.mysql.values import conversion_table

LOCK_WAIT_S: Final = 10
SQL_MODE: Final = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_VERSION: Final = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)")
_unverified: Final[list[Any]] = []


def connect(address: Address) -> Connection:
    """A connection that is set up our way. What goes wrong is raised in our words, and so is not tried again here: who
    calls us knows better for how long to wait for a server that is away."""
    connection: Connected | None = None
    limit_s = address.arguments["connect_timeout"]
    try:
        connection = Connected(
            **{**address.arguments, "read_timeout": limit_s, "write_timeout": limit_s},
            charset="utf8mb4",
            autocommit=True,
            conv=conversion_table(),
            defer_connect=True,
        )
        connection.connect(connection.reach())
        _set_up(connection)
        connection.take_its_time(address.arguments["read_timeout"], address.arguments["write_timeout"])
    except BaseException as error:
        if connection is not None:
            discard(connection)
        # What is not MySQL sends what no message can be read from.
        if isinstance(error, pymysql.err.MySQLError | OSError | RuntimeError | struct.error | IndexError):
            raise not_connected(error, limit_s) from error
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
    for the answer to a statement: a port where nobody speaks would hold us for minutes. So the time-outs of statements
    come when it is connected.

    Where the URL says nothing about certificates, PyMySQL encrypts if the server can, and verifies nothing. Yet for
    each connection it reads every certificate that this machine trusts, which takes longer than to connect: here, once.
    """

    def reach(self) -> socket.socket | None:
        """A socket of this machine, where it is one: PyMySQL would leave it open if nobody listens there."""
        if not self.unix_socket:
            return None
        way = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        way.settimeout(self.connect_timeout)
        try:
            way.connect(self.unix_socket)
        except OSError as error:
            way.close()
            raise pymysql.err.OperationalError(NO_SOCKET, f"{self.unix_socket}: {error}") from error
        self._secure = True
        return way

    def take_its_time(self, read_timeout: float, write_timeout: float) -> None:
        """From here on it is for statements."""
        self._read_timeout, self._write_timeout = read_timeout, write_timeout

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

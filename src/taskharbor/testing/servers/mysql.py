"""A real MariaDB or MySQL for tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit, urlunsplit

from taskharbor.testing.servers import apt
from taskharbor.testing.servers.accounts import Account, unprivileged
from taskharbor.testing.servers.databases import Databases
from taskharbor.testing.servers.errors import ServerUnavailable
from taskharbor.testing.servers.given import GivenServer
from taskharbor.testing.servers.local import HOST, LocalServer

ENVIRONMENT_NAME = "TASKHARBOR_TEST_MYSQL"
_FIRST_DATABASE = "harbor"
_FAST = {"innodb-flush-log-at-trx-commit": "0", "innodb-doublewrite": "0", "sync-binlog": "0"}
_ALWAYS = {"bind-address": HOST, "max-connections": "300", "skip-log-bin": "", "skip-name-resolve": ""}
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin", "/opt/homebrew/bin")
_PROTOCOL_VERSION = 10


def mysql_server(
    *, fast: bool = False, settings: Mapping[str, str] | None = None, install: bool = True
) -> MysqlServer | GivenMysql:
    """A MariaDB or MySQL to use in a `with` statement: the one that TASKHARBOR_TEST_MYSQL names, else one of our
    own from local binaries, which are installed with apt where we are root and `install` allows it.

    `fast` gives up durability for speed; without it the server's defaults hold. Raises ServerUnavailable.
    """
    url = os.environ.get(ENVIRONMENT_NAME)
    if url:
        return GivenMysql(url)
    daemon = _find_daemon()
    if daemon is None and install and apt.install("mariadb-server"):
        daemon = _find_daemon()
    if daemon is None:
        raise ServerUnavailable(
            f"no MariaDB or MySQL here: set {ENVIRONMENT_NAME} to the URL of one, or install mariadb-server"
        )
    account = unprivileged(["mysql"])
    return MysqlServer(account, daemon, {**_ALWAYS, **(_FAST if fast else {}), **(settings or {})})


class MysqlServer(LocalServer, Databases):
    """MariaDB or MySQL from local binaries."""

    name: ClassVar[str] = "mysql"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    crash_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, account: Account, daemon: Path, settings: Mapping[str, str]) -> None:
        super().__init__(account)
        self.settings = dict(settings)
        self._daemon = daemon
        self._installer = _find("mariadb-install-db", "mysql_install_db") if "mariadb" in daemon.name else None

    @property
    def url(self) -> str:
        return f"mysql://{self.user}:{self.password}@{HOST}:{self.port}/{_FIRST_DATABASE}"

    @property
    def _own_tmpdir(self) -> str:
        """A server that starts removes the temporary tables that it finds: in /tmp, those of others that run."""
        return f"--tmpdir={self.directory}"

    def _prepare(self) -> None:
        places = [f"--datadir={self.directory / 'data'}", self._own_tmpdir]
        if self._installer is not None:
            login = "--auth-root-authentication-method=socket"
            self._run([str(self._installer), "--no-defaults", *places, login, "--skip-test-db"])
        else:
            self._run([str(self._daemon), "--no-defaults", "--initialize-insecure", *places])
        account = f"'{self.user}'@'%'"
        statements = [
            f"CREATE DATABASE IF NOT EXISTS {_FIRST_DATABASE}",
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{self.password}'",
            f"GRANT ALL ON *.* TO {account} WITH GRANT OPTION",
        ]
        if self._installer is None:
            statements.append(f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{self.password}'")
        self._write("first.sql", "".join(f"{statement};\n" for statement in statements))

    def _command(self) -> list[str]:
        options = [f"--{name}={value}" if value else f"--{name}" for name, value in self.settings.items()]
        return [
            str(self._daemon),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            self._own_tmpdir,
            f"--socket={self.directory / 'server.sock'}",
            f"--pid-file={self.directory / 'server.pid'}",
            f"--init-file={self.directory / 'first.sql'}",
            f"--port={self.port}",
            *options,
        ]

    def _ready(self) -> bool:
        """The first packet greets with the protocol's version, or tells of an error."""
        if not (self.directory / "server.pid").exists():
            return False  # whoever answers on the port is not our server
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                return connection.recv(5)[4:] == bytes([_PROTOCOL_VERSION])
        except OSError:
            return False

    def _execute(self, sql: str) -> None:
        _execute(self.url, sql)

    def _url_of(self, database: str) -> str:
        return _with_database(self.url, database)


class GivenMysql(GivenServer):
    """The MariaDB or MySQL of somebody else."""

    name: ClassVar[str] = "mysql"

    def _execute(self, sql: str) -> None:
        _execute(self.url, sql)

    def _url_of(self, database: str) -> str:
        return _with_database(self.url, database)


def _find_daemon() -> Path | None:
    return _find("mariadbd", "mysqld")


def _find(*names: str) -> Path | None:
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), *_PLACES))
    for name in names:
        found = shutil.which(name, path=places)
        if found:
            return Path(found).resolve()
    return None


def _execute(url: str, sql: str) -> None:
    pymysql = _client()
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname or HOST,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        autocommit=True,
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
    finally:
        connection.close()


def _client() -> Any:
    try:
        import pymysql
    except ModuleNotFoundError:
        raise ServerUnavailable("no client for MySQL: pip install 'taskharbor[mysql]'") from None
    return pymysql


def _with_database(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))

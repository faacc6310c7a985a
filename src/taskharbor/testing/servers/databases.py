"""Empty databases on a running server, so that tests do not see each other."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod


class Databases(ABC):
    """Makes and drops databases. The statements are the same in PostgreSQL, MySQL and MariaDB."""

    def create_database(self) -> str:
        """The URL of a new, empty database."""
        database = f"taskharbor_test_{secrets.token_hex(6)}"
        self._execute(f"CREATE DATABASE {database}")
        return self._url_of(database)

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` made."""
        database = url.partition("?")[0].rpartition("/")[2]
        if not database.startswith("taskharbor_test_"):
            raise ValueError(f"{database!r} was not made by create_database: not dropping it")
        self._execute(f"DROP DATABASE IF EXISTS {database}")

    @abstractmethod
    def _execute(self, sql: str) -> None:
        """Run one statement outside of any transaction."""

    @abstractmethod
    def _url_of(self, database: str) -> str:
        """The URL of that database on this server."""

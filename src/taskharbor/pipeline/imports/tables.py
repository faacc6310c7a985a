"""Reading the tables of another system, a portion at a time in the order of their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from taskharbor.core.errors import InvalidInput, InvalidURL, MissingExtra, StoreUnavailable
from taskharbor.drivers.opening import redacted

PORTION: Final = 1_000
Row = dict[str, Any]


def open_tables(url: str) -> Tables:
    scheme = urlsplit(url).scheme
    if scheme in ("postgresql", "postgres"):
        return PostgresTables(url)
    if scheme in ("mysql", "mariadb"):
        return MysqlTables(url)
    raise InvalidURL(f"{redacted(url)} is no database to import from: give postgresql://… or mysql://…")


class Tables:
    """The tables behind one connection. What is read is never changed."""

    quote = '"'

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None

    def _connect(self) -> Any:
        raise NotImplementedError

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._connection is None:
            try:
                self._connection = self._connect()
            except (MissingExtra, InvalidInput):
                raise
            except Exception as error:
                raise StoreUnavailable(f"cannot open {redacted(self._url)}: {error}") from None
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql, tuple(values))
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            cursor.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def exists(self, table: str) -> bool:
        sql = "SELECT 1 AS there FROM information_schema.tables WHERE table_name = %s AND table_schema = "
        return bool(self.query(sql + self._schema(), (table,)))

    def _schema(self) -> str:
        raise NotImplementedError

    def count(self, table: str, without: Sequence[tuple[str, str, str]] = ()) -> int:
        """How many rows it has, less those that `without` leaves out, as for `portions`."""
        where = f"WHERE {' AND '.join(map(self._absent, without))}" if without else ""
        return int(self.query(f"SELECT count(*) AS count FROM {self._name(table)} t {where}")[0]["count"])

    def _absent(self, without: tuple[str, str, str]) -> str:
        other, ours, theirs = without
        return f"NOT EXISTS (SELECT 1 FROM {self._name(other)} o WHERE o.{theirs} = t.{ours})"

    def portions(self, table: str, key: str, without: tuple[str, str, str] | None = None) -> Iterator[list[Row]]:
        """All rows by `key`, each read a short one that begins behind the last. `without` leaves out rows whose second
        name is found as the third one in the first, a table."""
        if not self.exists(table):
            raise InvalidInput(f"{redacted(self._url)} has no table {table}: is it the right database?")
        last: Any = None
        rest = "" if without is None else self._absent(without)
        while True:
            conditions = [text for text in (rest, "" if last is None else f"{self._ordered(key)} > %s") if text]
            where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
            sql = f"SELECT * FROM {self._name(table)} t {where} ORDER BY {self._ordered(key)} LIMIT {PORTION}"
            rows = self.query(sql, () if last is None else (last,))
            if rows:
                yield rows
            if len(rows) < PORTION:
                return
            last = self._position(rows[-1][key])

    def rows(self, table: str, key: str) -> Iterator[Row]:
        for part in self.portions(table, key):
            yield from part

    def grouped(self, table: str, key: str, values: Sequence[Any], order: str) -> dict[Any, list[Row]]:
        """The rows whose `key` is one of these, by it."""
        marks = ", ".join(["%s"] * len(values))
        sql = f"SELECT * FROM {self._name(table)} WHERE {key} IN ({marks}) ORDER BY {order}"
        found: dict[Any, list[Row]] = {}
        for row in self.query(sql, values):
            found.setdefault(row[key], []).append(row)
        return found

    def _name(self, table: str) -> str:
        if not table.replace("_", "").isalnum():
            raise InvalidInput(f"{table!r} is no name of a table")
        return f"{self.quote}{table}{self.quote}"

    def _ordered(self, key: str) -> str:
        return f"t.{key}"

    def _position(self, value: Any) -> Any:
        return value


class PostgresTables(Tables):
    def _connect(self) -> Any:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("postgresql:// needs an extra: pip install 'taskharbor[postgres]'") from None
        return psycopg.connect(self._url, autocommit=True, options="-c default_transaction_read_only=on")

    def _schema(self) -> str:
        return "current_schema()"


class MysqlTables(Tables):
    quote = "`"

    def _connect(self) -> Any:
        try:
            import pymysql

            from taskharbor.drivers.mysql.address import Address
        except ImportError:
            raise MissingExtra("mysql:// needs an extra: pip install 'taskharbor[mysql]'") from None
        # TIMESTAMP columns come in the zone of the session.
        return pymysql.connect(
            **Address(self._url).arguments, charset="utf8mb4", autocommit=True, init_command="SET time_zone = '+00:00'"
        )

    def _schema(self) -> str:
        return "DATABASE()"

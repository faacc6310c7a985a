"""SQLite for the pipeline: each process reads the file through a connection of its own that can only read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.clock import to_micros
from taskharbor.core.errors import InvalidInput
from taskharbor.drivers.opening import StoreURL, _local_path
from taskharbor.pipeline.arrows import batch_from_rows, hashed
from taskharbor.pipeline.store_columns import Dialect, views
from taskharbor.pipeline.store_sql import Key, SqlStore, View

if TYPE_CHECKING:
    import pyarrow as pa

    from taskharbor.drivers.sqlite.driver import SqliteDriver

_DIALECT: Final = Dialect(
    time=lambda name: name,
    hashed="th_hashed(lease_token)",
    real=lambda sql: sql,
    history_key=Key(("seq",), ("seq",)),
)


class SqliteStore(SqlStore):
    kind = "sqlite"

    def __init__(self, url: StoreURL) -> None:
        # Executors may run in another directory than the one that asks.
        path = str(Path(_local_path(url)).absolute())
        super().__init__(replace(url, path=f"/{path}", rest=f"sqlite:///{path}"))
        self._driver: SqliteDriver | None = None

    def close(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _make_views(self) -> dict[str, View]:
        return views(_DIALECT, self._parsed.prefix)

    def _read_identity(self) -> str:
        return str(self._rows(f"SELECT value FROM {self._prefix}meta WHERE key = 'store_id'")[0][0])

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._opened()._reading() as connection:
            connection.create_function("th_hashed", 1, hashed, deterministic=True)
            return connection.execute(sql).fetchall()

    def _fetch(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield batch_from_rows(self._rows(sql), schema)

    def _opened(self) -> SqliteDriver:
        if self._driver is None:
            from taskharbor.drivers.sqlite.driver import SqliteDriver

            options = {**self._parsed.options, "mode": "ro"}
            self._driver = SqliteDriver(_local_path(self._parsed), prefix=self._prefix, options=options)
        return self._driver

    def _text(self, text: str) -> str:
        if "\0" in text:
            raise InvalidInput("a text with a NUL character matches nothing: leave it out")
        quoted = text.replace("'", "''")
        return f"'{quoted}'"

    def _moment(self, moment: datetime) -> str:
        return str(to_micros(moment))

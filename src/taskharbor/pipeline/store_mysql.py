"""MySQL and MariaDB for the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import InvalidInput, MissingExtra
from taskharbor.pipeline.arrows import batch_from_rows
from taskharbor.pipeline.store_columns import Dialect, views
from taskharbor.pipeline.store_sql import Key, SqlStore, View

if TYPE_CHECKING:
    import pyarrow as pa

_DIALECT: Final = Dialect(
    # A number is read ten times as fast as a date.
    time=lambda name: f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {name})",
    # A restored fact has the hash already.
    hashed="CASE WHEN LENGTH(lease_token) = 64 THEN lease_token ELSE SHA2(lease_token, 256) END",
    real=lambda sql: sql,
    history_key=Key(("seq",), ("seq",)),
)


class MysqlStore(SqlStore):
    kind = "mysql"

    def __init__(self, url: Any) -> None:
        super().__init__(url)
        self._store: Any = None

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _make_views(self) -> dict[str, View]:
        return views(_DIALECT, self._parsed.prefix)

    def _read_identity(self) -> str:
        return str(self._opened().read_identity())

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        def work(session: Any) -> list[tuple[Any, ...]]:
            session._execute(sql)
            return list(session._cursor.fetchall())

        rows: list[tuple[Any, ...]] = self._opened().read(work)
        return rows

    def _fetch(self, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield batch_from_rows(self._rows(sql), schema)

    def _opened(self) -> Any:
        if self._store is None:
            try:
                from taskharbor.drivers.mysql.address import Address
                from taskharbor.drivers.mysql.store import Store
            except ImportError as error:
                raise MissingExtra(
                    f"{self._parsed.scheme}:// needs an extra ({error.name}): pip install 'taskharbor[mysql]'"
                ) from None
            self._store = Store(Address(self._parsed.rest), self._prefix)
        return self._store

    def _text(self, text: str) -> str:
        if "\0" in text:
            raise InvalidInput("a text with a NUL character matches nothing: leave it out")
        quoted = text.replace("\\", "\\\\").replace("'", "''")
        return f"'{quoted}'"

    def _moment(self, moment: datetime) -> str:
        return f"'{moment.astimezone(UTC).isoformat(' ', 'microseconds')[:26]}'"

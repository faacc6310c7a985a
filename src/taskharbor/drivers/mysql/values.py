"""How values are written into SQL text and read back. Both are done often enough to matter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from pymysql.constants import FIELD_TYPE
from pymysql.converters import conversions

CHUNK_ROWS: Final = 500
"""Most ids or items in one statement. From 1,000 on, MariaDB would turn an IN list into a table of its own."""
CHUNK_BYTES: Final = 1_000_000

_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_INSERT: Final = re.compile(r"(?s)(?P<head>.*?\bVALUES)\s*(?P<row>\((?:[^()]|%\(\w+\)s)*\))(?P<tail>.*)")
_NAME: Final = re.compile(r"%\((\w+)\)s")


def sql_time(moment: datetime) -> str:
    """A UTC time as DATETIME(6) text; much quicker than what PyMySQL does with a datetime."""
    return moment.isoformat(" ", "microseconds")[:26]


def optional_time(moment: datetime | None) -> str | None:
    return None if moment is None else sql_time(moment)


@lru_cache(maxsize=8192)
def read_time(text: str) -> datetime:
    """DATETIME(6) text as a time in UTC. Jobs of one batch share their times, so many are found in the cache."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Literal:
    """SQL text to be put in as it is, where PyMySQL would escape letter by letter."""

    __slots__ = ("sql",)

    def __init__(self, sql: str) -> None:
        self.sql = sql


def conversion_table() -> dict[Any, Any]:
    """PyMySQL's conversions, but with aware and quickly read times, and with literals."""
    table: dict[Any, Any] = dict(conversions)
    table[FIELD_TYPE.DATETIME] = read_time
    table[Literal] = _sql_of
    return table


def _sql_of(value: Literal, mapping: Any) -> str:
    return value.sql


def text_literal(text: str) -> Literal:
    """A long text of JSON. Nothing but quotes and backslashes means something in a literal, since our sessions set
    their own SQL mode; PyMySQL would look at every letter."""
    quoted = text.replace("\\", "\\\\").replace("'", "''")
    return Literal(f"_utf8mb4 '{quoted}'")


def list_literal(values: Sequence[str]) -> Literal | Sequence[str]:
    """What stands behind IN. Ids are nearly always plain; if one is not, PyMySQL escapes them all."""
    joined = "','".join(values)
    plain = joined.isascii() and "\\" not in joined and joined.count("'") == 2 * (len(values) - 1)
    return Literal(f"('{joined}')") if plain else values


def items_text(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The items as JSON for JSON_TABLE, in parts of bounded size. What is None is left out: that reads as NULL on
    every server, which a JSON null need not."""
    for part in chunks(items):
        yield from _split_text([{k: v for k, v in item.items() if v is not None} for item in part])


def ids_text(ids: Sequence[str]) -> Iterator[str]:
    for part in chunks(ids):
        yield from _split_text(part)


def _split_text(part: Sequence[Any]) -> Iterator[str]:
    text = _to_json(part)
    if len(text) <= CHUNK_BYTES or len(part) == 1:
        yield text
        return
    texts: list[str] = []
    size = 0
    for text in map(_to_json, part):
        if texts and size + len(text) > CHUNK_BYTES:
            yield f"[{','.join(texts)}]"
            texts, size = [], 0
        texts.append(text)
        size += len(text)
    yield f"[{','.join(texts)}]"


def chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), CHUNK_ROWS):
        yield values[start : start + CHUNK_ROWS]


class BulkInsert:
    """An INSERT of one row, run with many rows at a time."""

    def __init__(self, sql: str) -> None:
        found = _INSERT.fullmatch(sql)
        assert found is not None, sql
        self._head = found["head"].replace("%%", "%")
        self._tail = found["tail"].replace("%%", "%")
        self.names: Sequence[str] = _NAME.findall(found["row"])

    def statements(self, rows: Iterable[str]) -> Iterator[str]:
        """The statements for any number of rows, each row given as its values in SQL without the parentheses."""
        part: list[str] = []
        size = 0
        for row in rows:
            if part and size + len(row) > CHUNK_BYTES:
                yield self._put_together(part)
                part, size = [], 0
            part.append(row)
            size += len(row)
        if part:
            yield self._put_together(part)

    def _put_together(self, part: Sequence[str]) -> str:
        return f"{self._head} ({'),('.join(part)}) {self._tail}"


def sql_in_parts(head: str, rows: Sequence[str]) -> Iterator[str]:
    """`head` and the rows behind it, each in its parentheses, in statements of bounded size."""
    part: list[str] = []
    size = 0
    for row in rows:
        if part and size + len(row) > CHUNK_BYTES:
            yield head + ",".join(part)
            part, size = [], 0
        part.append(row)
        size += len(row)
    if part:
        yield head + ",".join(part)


def literal(value: Any, escape: Callable[[str], str]) -> str:
    """The value as SQL text. Bytes go as hexadecimal digits: nothing in them needs escaping then."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return str(int(value))

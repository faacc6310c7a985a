"""Statements that are run for thousands of rows take their values by position, which binds twice as fast as by name.

The files keep `:name`; the caller states the order it will give the values in, and a mistake is found when the
driver is opened, not in somebody's data.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z][a-z0-9_]*)")
_ROWS_AT_ONCE: Final = 50


def ordered(sql: str, *names: str) -> str:
    """`sql` with a `?` for each value. `names` must be its values in the order they stand, repeats included."""
    found = tuple(_PARAMETER.findall(sql))
    if found != names:
        raise AssertionError(f"the statement takes {found}, the code gives {names}")
    return _PARAMETER.sub("?", sql)


class Inserter:
    """Inserts rows with a statement of the form `INSERT … VALUES (…)`.

    Many rows to a statement, because beginning and ending one costs SQLite about half as much as a row.
    """

    def __init__(self, sql: str, *names: str) -> None:
        self._one = ordered(sql, *names)
        head, values, row = self._one.rpartition("VALUES")
        self._many = head + values + ", ".join([row] * _ROWS_AT_ONCE)

    def insert(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        rest = len(rows) - len(rows) % _ROWS_AT_ONCE
        for start in range(0, rest, _ROWS_AT_ONCE):
            connection.execute(self._many, tuple(chain.from_iterable(rows[start : start + _ROWS_AT_ONCE])))
        connection.executemany(self._one, rows[rest:])

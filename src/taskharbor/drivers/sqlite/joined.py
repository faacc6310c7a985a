"""The caller's own transaction: open before we write into it.

Python's sqlite3 begins a transaction by itself before an INSERT, but not before a SAVEPOINT, and releasing a
savepoint outside of a transaction commits. So the transaction that the library would have begun is begun here,
and as a writing one, because SQLite cannot always turn a reading transaction into one later on.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

_BEGIN: Final = "BEGIN IMMEDIATE"


def begin(connection: Any) -> None:
    """Begin a transaction on a sqlite3 connection, or on SQLAlchemy's Session or Connection, if none is open."""
    if isinstance(connection, sqlite3.Connection):
        if _needs_begin(connection):
            connection.execute(_BEGIN)
        return
    if hasattr(connection, "run_sync"):
        return  # asynchronous: refused with a better message further on
    inner = connection.connection() if callable(getattr(connection, "connection", None)) else connection
    if getattr(getattr(inner, "dialect", None), "name", "") != "sqlite":
        return
    if _needs_begin(inner.connection.driver_connection):
        inner.exec_driver_sql(_BEGIN)


async def abegin(connection: Any) -> bool:
    """The same for aiosqlite. False for SQLAlchemy's asynchronous forms, which are run synchronously instead."""
    if hasattr(connection, "run_sync"):
        return False
    if hasattr(connection, "__aenter__") and hasattr(connection, "isolation_level"):
        if _needs_begin(connection):
            await connection.execute(_BEGIN)
    else:
        begin(connection)
    return True


def _needs_begin(connection: Any) -> bool:
    """Whether the library would begin a transaction for a write. A caller in autocommit mode wants none."""
    # Python 3.12 has `autocommit`: True never begins, False always has one open, anything else is as before.
    if getattr(connection, "autocommit", None) is True:
        return False
    return not connection.in_transaction and connection.isolation_level is not None

"""ADBC's connections to PostgreSQL, and its errors in our own words.

A new connection costs ADBC a tenth of a second, because it asks for every type that the server knows. Spark's Python
processes live on from task to task, so each of them may keep one connection for the next task.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from taskharbor.core.errors import (
    HOW_TO_MIGRATE,
    MissingExtra,
    SchemaMissing,
    StoreError,
    TaskHarborError,
)

KEPT_S: Final = 30.0
"""A connection that rested longer is closed, not used: who knows what became of the server meanwhile."""
_LOST: Final = (
    *("could not connect", "connection to server", "server closed the connection", "terminating connection"),
    *("no connection to the server", "server terminated", "the database system is "),
)
_MISSING: Final = re.compile(r'relation "[^"]*" does not exist')

log = logging.getLogger("taskharbor.pipeline")


class _Kept(NamedTuple):
    url: str
    connection: Any
    process: int
    since: float


_kept: list[_Kept] = []
"""At most one."""


def connected(url: str) -> Any:
    """A connection to the server of `url`: the one that was kept, if it is to the same, else a new one."""
    while _kept:
        found = _kept.pop()
        if found.process != os.getpid():
            continue  # of the process that this one was forked from, which goes on using it
        fresh = time.monotonic() - found.since < KEPT_S
        if found.url == url and fresh and _answers(found.connection):
            return found.connection
        _close(found.connection)
    try:
        from adbc_driver_postgresql import dbapi

        from taskharbor.drivers.postgres.target import split_options
    except ImportError as error:
        raise MissingExtra(
            f"Spark reads PostgreSQL with an extra that is missing ({error.name}): "
            "pip install 'taskharbor[spark,postgres]'"
        ) from None
    address, _ = split_options(url)
    return dbapi.connect(address, autocommit=False)


def give_back(url: str, connection: Any, *, keep: bool) -> None:
    """Let go of a connection; `keep` it for the next one to ask if there is none yet."""
    if keep and not _kept:
        _kept.append(_Kept(url, connection, os.getpid(), time.monotonic()))
        # Spark has Python collect garbage after every task, which walks over all that was imported: let it not.
        if not gc.get_freeze_count():
            gc.freeze()
    else:
        _close(connection)


@contextmanager
def in_our_words() -> Iterator[None]:
    """Raise errors of our tree in place of ADBC's."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("adbc_driver_manager"):
            raise translated(error) from error
        raise


def translated(error: Exception) -> TaskHarborError:
    """What ADBC raised, as an error of our tree. libpq never puts the password into its messages."""
    from taskharbor.drivers.postgres.errors import _known
    from taskharbor.drivers.postgres.refusals import not_connected

    known = _known(getattr(error, "sqlstate", None), error)
    if known is not None:
        return known
    text = " ".join(str(error).split())
    if missing := _MISSING.search(text):  # of a table to write into, ADBC asks first, and gives no code of the server's
        return SchemaMissing(f"the tables are not there: {HOW_TO_MIGRATE} ({missing[0]})")
    if any(sign in text for sign in _LOST):
        return not_connected(text)
    return StoreError(f"PostgreSQL: {text}")


def _answers(connection: Any) -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchall()
        connection.rollback()
    except Exception as error:  # whatever is wrong with it, another one is made
        log.debug("a kept connection is of no use any more: %s", type(error).__name__)
        return False
    return True


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception as error:
        log.debug("a connection could not be closed in good order: %s", type(error).__name__)


def _close_kept() -> None:
    while _kept:
        found = _kept.pop()
        if found.process == os.getpid():
            _close(found.connection)


atexit.register(_close_kept)

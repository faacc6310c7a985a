"""What psycopg raises, in the words of our own tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from taskharbor.core.errors import (
    HOW_TO_MIGRATE,
    DriverClosed,
    InvalidInput,
    SchemaMissing,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    TaskHarborError,
)
from taskharbor.drivers.joining import missing_in_the_callers_database
from taskharbor.drivers.postgres.refusals import not_connected

RETRYABLE: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)

_BY_STATE: Final[dict[str, tuple[type[TaskHarborError], str]]] = {
    "42P01": (SchemaMissing, f"the tables are not there: {HOW_TO_MIGRATE}"),
    "42703": (SchemaMissing, f"the tables are older than this version: {HOW_TO_MIGRATE}"),
    "25P01": (InvalidInput, "this connection is not in a transaction: begin one, or leave connection out"),
    "25P02": (InvalidInput, "an earlier statement of this transaction has failed: roll it back, and try again"),
    "40001": (StoreUnavailable, "another transaction got in between: roll back, and try again"),
    "40P01": (StoreUnavailable, "this and another transaction waited for each other: roll back, and try again"),
    "25006": (StoreReadOnly, "PostgreSQL accepts no writes here: connect to the primary"),
    "53100": (StoreFull, "PostgreSQL has no disk space left: free some, nothing of this call was kept"),
    "42501": (StoreReadOnly, "the database user may not do this: grant it the privileges on the tables"),
    "28P01": (StoreRefused, "PostgreSQL refused the password: check the user and password in the URL"),
    "28000": (StoreRefused, "PostgreSQL refused the login: check the user in the URL and pg_hba.conf"),
    "3D000": (StoreRefused, "there is no such database: create it, or correct the URL"),
    "53300": (StoreUnavailable, "PostgreSQL has no connection left: raise max_connections or lower max_size"),
}


@contextmanager
def translated() -> Iterator[None]:
    """Raise our errors in place of psycopg's."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


@contextmanager
def translated_for_migration() -> Iterator[None]:
    """The same where tables are made: other privileges are wanted there."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreReadOnly(
            "the database user may not make or change tables: grant it CREATE on the schema, or, where there are "
            f"tables already, migrate as their owner ({_first_line(error)})"
        ) from error


@contextmanager
def translated_for_caller() -> Iterator[None]:
    """The same for a connection of the caller's. SQLAlchemy keeps the error of its library in `orig`."""
    with missing_in_the_callers_database():
        try:
            yield
        except Exception as error:
            first = getattr(error, "orig", None) or error
            if isinstance(first, psycopg.Error):
                raise translate(first) from error
            if known := _known(getattr(first, "sqlstate", None), first):  # asyncpg has the same codes
                raise known from error
            raise


def _known(state: str | None, error: BaseException) -> TaskHarborError | None:
    if state not in _BY_STATE:
        return None
    kind, cure = _BY_STATE[state]
    return kind(f"{cure} ({_first_line(error)})")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


def translate(error: psycopg.Error) -> TaskHarborError:
    if isinstance(error, PoolClosed):
        return DriverClosed("this driver was closed: open another one with open_driver(url)")
    if isinstance(error, PoolTimeout):
        return StoreUnavailable("PostgreSQL gave no connection in time: is it running, and are others hogging it?")
    text = _first_line(error)
    if known := _known(error.sqlstate, error):
        return known
    if isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08")[:2] in ("08", "57"):
        return not_connected(text)
    return StoreError(f"PostgreSQL: {text}")

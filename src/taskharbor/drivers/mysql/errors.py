"""What PyMySQL raises, in the words of our own tree."""

from __future__ import annotations

import re
import ssl
from typing import Final

import pymysql

from taskharbor.core.errors import (
    HOW_TO_MIGRATE,
    InvalidInput,
    PayloadTooLarge,
    SchemaMissing,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    TaskHarborError,
)
from taskharbor.core.intake import id_taken

DEADLOCKS: Final = frozenset({1213, 1205, 1020, 3572})
"""Deadlock, lock wait timeout, row changed under a snapshot, NOWAIT: the transaction may simply run again."""

LOST: Final = frozenset({2006, 2013, 2014, 2055, 1053, 1927, 4031, 0})
"""The connection is gone. PyMySQL reports a use of a closed connection as 0."""

NO_SOCKET: Final = 2002
_DUPLICATE: Final = 1062
_DUPLICATE_TEXT: Final = re.compile(r"Duplicate entry '(.*)' for key", re.DOTALL)
_NOT_GRANTED: Final = 1142
_MAKES_TABLES: Final = re.compile(r"(CREATE|ALTER|DROP|INDEX)\b")
_BY_NUMBER: Final[dict[int, tuple[type[TaskHarborError], str]]] = {
    1045: (StoreRefused, "the server refused the login: check the user and password in the URL"),
    1698: (StoreRefused, "the server refused the login: check the user in the URL"),
    1044: (StoreRefused, "this user may not use the database: check the URL, or grant the user access"),
    1129: (StoreRefused, "the server blocks this machine: unblock it there with FLUSH HOSTS, and find out why"),
    1130: (StoreRefused, "the server takes no login from this machine: create the user for this host as well"),
    1820: (StoreRefused, "the password of this user has expired: set another one, and correct the URL"),
    1862: (StoreRefused, "the password of this user has expired: set another one, and correct the URL"),
    3118: (StoreRefused, "this user is locked: unlock it, or take another one in the URL"),
    4151: (StoreRefused, "this user is locked: unlock it, or take another one in the URL"),
    2026: (StoreRefused, "no encrypted connection: check the ssl_… files in the URL, and whether the server has TLS"),
    1049: (StoreRefused, "there is no such database: create it, or correct the URL"),
    1040: (StoreUnavailable, "the server has no connection left: raise max_connections or lower pool_size"),
    1203: (StoreUnavailable, "this user has no connection left: raise max_user_connections or lower pool_size"),
    1226: (StoreUnavailable, "this user has used up its share of the server: wait, or raise the limits of the user"),
    2003: (StoreUnavailable, "the server cannot be reached: is it running at the URL's host and port?"),
    2002: (StoreUnavailable, "the server cannot be reached: is it running, and is the socket path right?"),
    1146: (SchemaMissing, f"the tables are not there: {HOW_TO_MIGRATE}"),
    1054: (SchemaMissing, f"the tables are older than this version: {HOW_TO_MIGRATE}"),
    1142: (StoreReadOnly, "this user may not do that: grant it SELECT, INSERT, UPDATE and DELETE on the tables"),
    1290: (StoreReadOnly, "the server accepts no writes: connect to the primary"),
    1792: (StoreReadOnly, "the transaction accepts no writes: connect to the primary"),
    1836: (StoreReadOnly, "the server is read only: connect to the primary"),
    1021: (StoreFull, "the server's disk is full: free some room, nothing of this call was kept"),
    1114: (StoreFull, "the server has no room for the table: free some, nothing of this call was kept"),
    1305: (InvalidInput, "this connection is not in a transaction: begin one, or leave connection out"),
    1153: (PayloadTooLarge, "the server does not take that much at once: raise max_allowed_packet"),
    1034: (StoreCorrupt, "a table is damaged: restore it from a backup"),
    1194: (StoreCorrupt, "a table is marked as crashed: repair or restore it"),
    1712: (StoreCorrupt, "an index is damaged: rebuild the table or restore it"),
    1877: (StoreCorrupt, "a table cannot be read: restore it from a backup"),
}
_NO_HOST: Final = 2003
_WHOSE_PORT: Final = "is this the port of a MySQL or MariaDB server?"
_INSECURE: Final = "insecure transport"
"""In the message of servers that take no other; only MySQL has a number for it."""
_NO_SPACE: Final = re.compile(r"\b(errno|error|Errcode)\D{0,4}28\b|No space left", re.IGNORECASE)


def number_of(error: Exception) -> int | None:
    """The server's error number, if it gave one."""
    return error.args[0] if isinstance(error, pymysql.err.MySQLError) and _numbered(error) else None


def is_deadlock(error: Exception) -> bool:
    return number_of(error) in DEADLOCKS


def is_lost(error: Exception) -> bool:
    return number_of(error) in LOST or (isinstance(error, pymysql.err.InterfaceError) and not _numbered(error))


def translate(error: Exception) -> TaskHarborError:
    """The error of our tree that says the same. The password is never part of a server's message."""
    number = number_of(error)
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if number == _DUPLICATE:
        found = _DUPLICATE_TEXT.search(text)
        return id_taken(found[1]) if found else InvalidInput(f"a job with that id exists ({text})")
    if number == _NOT_GRANTED and _MAKES_TABLES.match(text):
        cure = "grant it CREATE, CREATE VIEW, ALTER, DROP and INDEX on the database, or migrate as a user who has them"
        return StoreReadOnly(f"this user may not make or change tables: {cure} ({text})")
    if number in _BY_NUMBER:
        kind, cure = _BY_NUMBER[number]
        return kind(f"{cure} ({text})")
    if _NO_SPACE.search(text):
        return StoreFull(f"the server's disk is full: free some room, nothing of this call was kept ({text})")
    if is_deadlock(error):
        return StoreUnavailable(f"the server was too busy with locks, even after several tries: try later ({text})")
    if is_lost(error):
        return StoreUnavailable(f"the connection to the server was lost: is it running? ({text or 'no message'})")
    return StoreError(f"the server refused: {text} ({number})")


def not_connected(error: Exception, connect_timeout: int) -> TaskHarborError:
    """The same for what went wrong while connecting, where PyMySQL makes most of it one number."""
    cause = getattr(error, "original_exception", None) or error.__context__ or error
    if number_of(error) in (NO_SOCKET, _NO_HOST) and not isinstance(cause, ssl.SSLError):
        return translate(error)
    if isinstance(cause, TimeoutError):
        return StoreUnavailable(
            f"the connection was taken, but no login was possible within {connect_timeout} s: {_WHOSE_PORT} "
            "If it is one that is slow, raise connect_timeout in the URL"
        )
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return StoreRefused(f"no encrypted connection: check the ssl_… files in the URL, and the server's ({cause})")
    if isinstance(cause, ConnectionError | ssl.SSLError) or is_lost(error):
        return StoreUnavailable(
            f"the connection was lost during the login: is the server running? {_WHOSE_PORT} ({cause})"
        )
    if isinstance(error, OSError):
        return StoreRefused(f"cannot connect: {error}. Check the files that the URL names")
    if isinstance(error, RuntimeError):
        # PyMySQL says so when a login method needs a library that is not installed.
        return StoreRefused(f"cannot log in: {error}. Try pip install 'PyMySQL[rsa]', or connect with ssl_ca")
    if number_of(error) is None:
        return StoreRefused(f"what answers there does not speak as MySQL does: {_WHOSE_PORT} Correct the URL ({error})")
    if _INSECURE in str(error):
        return StoreRefused(
            "the server wants an encrypted connection: name who signed its certificate with ssl_ca in the URL"
        )
    return translate(error)


def _numbered(error: Exception) -> bool:
    return bool(error.args) and isinstance(error.args[0], int)

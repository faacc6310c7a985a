"""Looking at a MySQL store from outside, for the tests of its driver."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pymysql

from taskharbor.drivers.mysql.address import Address

ODD_TEXT = 'it\'s "quoted" \\ 50% \n\t\x01 é 漢 😀 '


def connect(url: str, **options: Any) -> Any:
    return pymysql.connect(**{**Address(url).arguments, "charset": "utf8mb4", **options})


def run(connection: Any, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute(sql, values or None)
        return list(cursor.fetchall())


def changed(url: str, **parts: Any) -> str:
    """The URL with another login or place: `user`, `password`, `host`, `port` or `database`."""
    split = urlsplit(url)
    user, password = parts.get("user", split.username), parts.get("password", split.password)
    host, port = parts.get("host", split.hostname), parts.get("port", split.port)
    path = f"/{parts['database']}" if "database" in parts else split.path
    return urlunsplit(split._replace(netloc=f"{user}:{password}@{host}:{port}", path=path))

"""From a `mysql://` URL to what PyMySQL wants to know."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from taskharbor.core.errors import InvalidURL
from taskharbor.drivers.opening import redacted

DEFAULT_POOL_SIZE: Final = 10
_TEXT_OPTIONS: Final = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key")
_NUMBER_OPTIONS: Final = {"connect_timeout": 10, "read_timeout": 120, "write_timeout": 120}


class Address:
    """Where the server is and how to log in. Printing it never shows the password."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            parts = urlsplit(url)
            port = parts.port or 3306
        except ValueError as error:
            raise InvalidURL(f"not a MySQL URL: {error}. Try mysql://user:password@host:3306/database") from None
        database = unquote(parts.path.removeprefix("/"))
        if not database or "/" in database:
            raise InvalidURL(f"{self} must name one database: mysql://user:password@host:3306/database")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.pool_size = _number(options, "pool_size", DEFAULT_POOL_SIZE)
        self.arguments: dict[str, Any] = {
            "host": parts.hostname or "127.0.0.1",
            "port": port,
            "user": unquote(parts.username or "") or None,
            "password": unquote(parts.password or ""),
            "database": database,
        }
        for name, default in _NUMBER_OPTIONS.items():
            self.arguments[name] = _number(options, name, default)
        for name in _TEXT_OPTIONS:
            if value := options.pop(name, ""):
                self.arguments[name] = value
        if options:
            known = ", ".join((*_TEXT_OPTIONS, *_NUMBER_OPTIONS, "pool_size", "prefix", "max_payload"))
            raise InvalidURL(f"unknown option {min(options)!r} in the URL: known are {known}")

    def __str__(self) -> str:
        return redacted(self._url)


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.pop(name, str(default))
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise InvalidURL(f"{name} must be a whole number from 1 to 10,000, got {text!r}")
    return int(text)

"""From a URL to a driver. Optional libraries are imported only when their scheme is asked for."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidURL, MissingExtra
from taskharbor.core.limits import Limits

DEFAULT_PREFIX: Final = "th_"
_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,23}")
_SCHEME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):(//)?")
# Up to the last @, because a password that nobody escaped may hold anything, even what ends a login.
_LOGIN: Final = re.compile(r"(?<=://)([^:/?#@]*):.*@", re.DOTALL)
# In what is no URL, to its end: where a password stops there is a matter of quotes.
_KEYWORD: Final = re.compile(r"(pass\w*\s*=).*", re.DOTALL | re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"[^:]*://([^/?#]*)", re.DOTALL)
# A client library would read it in its own way, and might show a part of the password when it stumbles.
_MISREAD: Final = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]|%(?!(?!00)[0-9A-Fa-f]{2})|@.*@", re.DOTALL)
_WITHOUT_TABLES: Final = ("memory", "json")
_IN_FILES: Final = ("json", "sqlite")
# What a path cannot have in a URL as it is; the surrogates stand for bytes that are no text.
_NOT_IN_A_PATH: Final = re.compile(r"[%?#\x00-\x20\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class StoreURL:
    """A store's address in parts. `rest` is the URL without the options that are ours, for the client library.

    Printing it never shows the password.
    """

    scheme: str
    path: str
    rest: str
    prefix: str
    limits: Limits
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"StoreURL({redacted(self.rest)!r})"


def open_driver(url: str, *, limits: Limits | None = None) -> Driver:
    """The driver for `url`:

    `memory://` · `memory://name` · `json:///dir` · `sqlite:///file` · `postgresql://…` · `mysql://…` · `mariadb://…`

    Options go in the query: `prefix=th_` (of the tables), `max_payload=1048576` (bytes). Call `migrate()` once
    before the first use. Other packages add schemes through the entry-point group `taskharbor.drivers`.
    """
    parsed = parse_url(url, limits)
    return _factory(parsed.scheme)(parsed)


def parse_url(url: str, limits: Limits | None = None) -> StoreURL:
    begins = _SCHEME.match(url) if isinstance(url, str) else None
    if begins is None or not begins[2]:
        # Only the scheme is shown, if there is one: all else may be a password, as in libpq's `password=… host=…`.
        if begins is not None and begins[1] in ("sqlite", "json"):
            raise InvalidURL(
                f"{begins[1]}: is followed by three slashes and a path, for example {begins[1]}:///jobs.db"
            )
        shown = f" ({begins[1]}:…)" if begins is not None else ""
        raise InvalidURL(
            f"not a store URL{shown}: one begins with a scheme and two slashes. "
            "Try sqlite:///jobs.db, or postgresql://user@host/database"
        )
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or (_LOGIN.search(url) and "@" not in parts.netloc) or _is_misread(url):
        raise InvalidURL(
            f"cannot read {redacted(url)!r}: write / ? # [ ] @ % and spaces in a password as %2F and so on"
        )
    if "#" in url:
        raise InvalidURL("a store URL has no part behind a #: write a # that belongs to a name as %23")
    scheme = parts.scheme.lower()
    options = _options(parts.query)
    prefix = check_prefix(options.get("prefix", DEFAULT_PREFIX))
    if scheme not in _WITHOUT_TABLES:
        options.pop("prefix", None)
    cap = options.pop("max_payload", None)
    if cap is not None:
        if not cap.isdecimal() or not 1 <= int(cap) <= 2**30:
            raise InvalidURL(f"max_payload must be a number of bytes from 1 to {2**30:,}, got {cap!r}")
        limits = replace(limits or Limits(), max_payload_bytes=int(cap))
    # Put together by hand: urlunsplit would take the two slashes of an absolute path for those before a host.
    rest = f"{parts.scheme}://{parts.netloc}{parts.path}" + (
        f"?{urlencode(options, quote_via=quote)}" if options else ""
    )
    path = unquote(parts.netloc + parts.path)
    if scheme in _IN_FILES and "\0" in path:
        raise InvalidURL(f"{redacted(url)!r} has a %00 in its path, which no file can have: correct the path")
    return StoreURL(scheme, path, rest, prefix, limits or Limits(), options)


def _is_misread(url: str) -> bool:
    authority = _AUTHORITY.match(url)
    return authority is not None and "@" in authority[1] and _MISREAD.search(authority[1]) is not None


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in options:
            raise InvalidURL(f"the option {name!r} is in the URL twice: give it once")
        options[name] = value
    return options


def check_prefix(prefix: str) -> str:
    """Table names are put together from the prefix, so it may hold nothing but a plain name."""
    if not _PREFIX.fullmatch(prefix):
        raise InvalidURL(
            f"prefix must be 1 to 24 of a-z, 0-9 and _, beginning with a letter, got {prefix!r}: for example prefix=th_"
        )
    return prefix


def redacted(url: str) -> str:
    """The URL with its passwords starred out, for messages and logs."""
    begins = _SCHEME.match(url)
    if begins is None or not begins[2]:
        return _KEYWORD.sub(r"\1***", url)
    head, mark, query = _LOGIN.sub(r"\1:***@", url).partition("?")
    shown = urlencode([(k, "***" if "pass" in k.lower() else v) for k, v in parse_qsl(query)], safe="*/:@")
    return head + mark + shown


def absolute(url: str) -> str:
    """The URL of a store in files as it reads from every directory; any other text as it is."""
    begins = _SCHEME.match(url)
    if begins is None or not begins[2] or begins[1].lower() not in _IN_FILES:
        return url
    head, mark, query = url[begins.end() :].partition("?")
    path = unquote(head)[1:]
    if not head.startswith("/") or not path:
        return url
    # Links stay as they are, since they may be led elsewhere; with .. behind one, only the system knows what is meant.
    whole = str(Path(os.path.realpath(path)) if ".." in path.split("/") else Path(path).absolute())
    shown = _NOT_IN_A_PATH.sub(lambda found: quote(found[0], errors="surrogateescape"), whole)
    return f"{begins[1].lower()}:///{shown}{mark}{query}"


def _refuse_options(url: StoreURL) -> None:
    if url.options:
        raise InvalidURL(f"unknown option {min(url.options)!r}: {url.scheme}:// takes max_payload")


def _open_memory(url: StoreURL) -> Driver:
    from taskharbor.drivers.memory import MemoryDriver

    _refuse_options(url)
    return MemoryDriver(url.path.strip("/"), limits=url.limits)


def _open_json(url: StoreURL) -> Driver:
    from taskharbor.drivers.jsonfile import JsonDriver

    _refuse_options(url)
    return JsonDriver(_local_path(url), limits=url.limits)


def _open_sqlite(url: StoreURL) -> Driver:
    from taskharbor.drivers.sqlite.driver import SqliteDriver

    return SqliteDriver(_local_path(url), prefix=url.prefix, limits=url.limits, options=url.options)


def _open_postgres(url: StoreURL) -> Driver:
    module = _optional("taskharbor.drivers.postgres.driver", "psycopg", url.scheme, "postgres")
    driver: Driver = module.PostgresDriver(url.rest, prefix=url.prefix, limits=url.limits)
    return driver


def _open_mysql(url: StoreURL) -> Driver:
    module = _optional("taskharbor.drivers.mysql.driver", "pymysql", url.scheme, "mysql")
    driver: Driver = module.MysqlDriver(url.rest, prefix=url.prefix, limits=url.limits)
    return driver


_BUILT_IN: Final[dict[str, Callable[[StoreURL], Driver]]] = {
    "memory": _open_memory,
    "json": _open_json,
    "sqlite": _open_sqlite,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
    "mysql": _open_mysql,
    "mariadb": _open_mysql,
}


def _factory(scheme: str) -> Callable[[StoreURL], Driver]:
    if scheme in _BUILT_IN:
        return _BUILT_IN[scheme]
    # Only here: it takes longer to import than everything else in this module, and hardly anybody needs it.
    from importlib.metadata import entry_points

    for entry in entry_points(group="taskharbor.drivers", name=scheme):
        factory: Callable[[StoreURL], Driver] = entry.load()
        return factory
    known = ", ".join(f"{name}://" for name in _BUILT_IN)
    raise InvalidURL(f"unknown store scheme {scheme!r}: known are {known} and what installed packages add")


def _optional(module: str, library: str, scheme: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in (library, "psycopg_pool"):
            raise
        raise MissingExtra(f"{scheme}:// needs an extra: pip install 'taskharbor[{extra}]'") from None


def _local_path(url: StoreURL) -> str:
    """`sqlite:///jobs.db` is relative and `sqlite:////var/jobs.db` absolute, as SQLAlchemy has it."""
    if not url.path.startswith("/") or len(url.path) < 2:
        raise InvalidURL(
            f"{url.scheme}:// needs three slashes and a path: {url.scheme}:///jobs or {url.scheme}:////var/jobs"
        )
    return url.path[1:]

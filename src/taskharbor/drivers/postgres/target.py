"""What a URL says: where libpq connects to, and how. Apart from the driver, for the short processes of the pipeline."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from psycopg.pq import Conninfo

from taskharbor.core.errors import InvalidURL

CONNECT_TIMEOUT_S: Final = 10
DEFAULT_POOL: Final = 10


def split_options(url: str) -> tuple[str, int]:
    """The URL for libpq, and the size of the pool, which libpq would not know."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    size = options.pop("max_size", str(DEFAULT_POOL))
    if not size.isdecimal() or not 1 <= int(size) <= 1_000:
        raise InvalidURL(f"max_size must be a number of connections from 1 to 1000, got {size!r}")
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    if unknown := sorted(options.keys() - known):
        raise InvalidURL(
            f"unknown option {unknown[0]!r} in the URL: known are max_size, prefix, max_payload, and those of libpq, "
            "such as sslmode, connect_timeout, application_name and options"
        )
    options.setdefault("connect_timeout", str(CONNECT_TIMEOUT_S))
    options["client_encoding"] = "UTF8"  # whatever the database has: what we send is in it
    query = urlencode(options, quote_via=quote)  # libpq takes a + for what it is, not for a space
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, "")), int(size)

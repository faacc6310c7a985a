"""What a URL says: where libpq connects to, and how. Apart from the driver, for the short processes of the pipeline."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from psycopg import OperationalError
from psycopg.pq import Conninfo

from taskharbor.core.errors import InvalidURL

CONNECT_TIMEOUT_S: Final = 10
DEFAULT_POOL: Final = 10
LAST_PORT: Final = 65_535
_VALUES: Final = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
}


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
    # Put together by hand: without a host, as for a Unix socket, urlunsplit leaves out the two slashes before it.
    target = f"{parts.scheme}://{parts.netloc}{parts.path}?{query}"
    _check(target)
    return target, int(size)


def _check(target: str) -> None:
    """Refuse what libpq would refuse at every attempt to connect, as if the server were to blame."""
    try:
        said = {option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.parse(target.encode())}
    except OperationalError:  # whose message may show a part of the password
        raise InvalidURL("libpq cannot read the URL: try postgresql://user:password@host:5432/database") from None
    for port in said["port"].split(","):
        if port and not (port.isdecimal() and 1 <= int(port) <= LAST_PORT):
            raise InvalidURL(f"the port must be a number from 1 to {LAST_PORT}, got {port!r}: correct the URL")
    if not said["connect_timeout"].removeprefix("-").isdecimal():
        raise InvalidURL(f"connect_timeout must be a number of seconds, got {said['connect_timeout']!r}")
    for name, values in _VALUES.items():
        if said.get(name) and said[name] not in values:
            raise InvalidURL(f"{name} must be one of {', '.join(values)}, got {said[name]!r}")

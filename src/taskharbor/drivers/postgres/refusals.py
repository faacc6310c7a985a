"""Why there is no connection: what waiting cures, and what somebody must correct.

While connecting, clients have the texts of libpq and of the server, but none of the server's codes.
"""

from __future__ import annotations

import re
from typing import Final

from taskharbor.core.errors import StoreRefused, StoreUnavailable

_WAIT: Final = re.compile(
    r"too many (clients|connections)|connection slots are reserved|starting up|shutting down|in recovery mode"
    r"|due to timeout|try again later"
)
"""It sounds like a refusal at times ("too many connections for role …"), and passes."""
_NAME: Final = re.compile(r'"[^"]*"')
"""Hosts, users and databases may be called anything."""
_REFUSALS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(signs, re.IGNORECASE), cure)
    for signs, cure in (
        (r"database .* does not exist|no such database", "there is no such database: create it, or correct the URL"),
        (r"permission denied for database", "this user may not use the database: GRANT CONNECT, or correct the URL"),
        (r"not currently accepting connections", "this database takes no connections: allow them, or correct the URL"),
        (
            r"does not support SSL|SSL was required",
            "PostgreSQL has no encrypted connections here, and sslmode in the URL asks for one: correct either",
        ),
        (
            r"channel binding|require_auth|authentication method requirement",
            "PostgreSQL logs in in another way than the URL allows: correct channel_binding or require_auth there",
        ),
        (
            r"certificate|private key file|unknown ca\b|weak sslmode|verified SSL|protocol version",
            "no encrypted connection: check sslmode, sslrootcert, sslcert and sslkey in the URL, and the server's own",
        ),
        (
            r"response to SSL negotiation|expected authentication request|unsupported frontend protocol",
            "what answers there does not speak as PostgreSQL does: is this its port? Correct the URL",
        ),
        (
            r"pg_hba\.conf|SSL connection is required|SSL required",
            "PostgreSQL takes no such login from here: allow it in pg_hba.conf, or correct the URL, its sslmode too",
        ),
        (
            r"password|authentication|\brole |no such user",
            "PostgreSQL refused the login: check the user and password in the URL",
        ),
        (
            r"invalid .*value|unsupported startup parameter|unrecognized configuration parameter|GSSAPI encryption",
            "PostgreSQL or its client refused an option: correct it in the URL",
        ),
    )
)


def not_connected(text: str) -> StoreUnavailable:
    """The error of our tree for this text."""
    said = _NAME.sub('""', text)
    if not _WAIT.search(said):
        for signs, cure in _REFUSALS:
            if signs.search(said):
                return StoreRefused(f"{cure} ({text})")
    return StoreUnavailable(f"PostgreSQL cannot be reached: is it running at the URL's host and port? ({text})")

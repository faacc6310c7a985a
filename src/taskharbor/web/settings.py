"""What a server is told at its start, the same for each of its processes."""

from __future__ import annotations

import ipaddress
import json
import secrets
from dataclasses import asdict, dataclass, field
from typing import Final

from taskharbor.core.limits import Limits

ENVIRONMENT: Final = "TASKHARBOR_SERVE"
"""Where a parent process leaves the settings for its children. Holds secrets: never logged, never shown."""
LOOPBACK: Final = "127.0.0.1"
_MARGIN: Final = 65_536
"""What a job's other fields and the quoting of its payload may take beside the payload itself."""


@dataclass(frozen=True, slots=True)
class Settings:
    url: str = field(repr=False)
    """The store. It may hold a password."""
    host: str = LOOPBACK
    port: int = 8080
    processes: int = 1
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Signs sessions. All processes of a server share it."""
    feed_start: str | None = None
    """A cursor of `latest`, taken once at the start: every process counts from there."""
    open: bool = False
    """No token was configured at the start: until there is one, everybody on this machine may do everything."""
    rate: float | None = None
    """Jobs a second that a tenant may enqueue; None is no limit."""
    burst: int | None = None
    """How many of them at once after a rest; None is one second's worth."""
    depth: int | None = None
    """How many jobs of a tenant may wait before no more are taken; None is no limit."""
    max_body: int = Limits().max_payload_bytes + _MARGIN
    """Bytes of one request, and of one line of a bulk request."""
    max_bulk: int = 256 * 1024 * 1024
    """Bytes of one bulk request."""
    session_hours: float = 12.0
    lake: str | None = None
    """Where the pipeline keeps its tables, for the dashboard's history."""
    secure_cookies: bool = False
    """Cookies are for HTTPS only: a proxy in front of the server speaks it."""
    threads: int = 16
    """Calls of the store that one process has under way at once."""

    @property
    def share(self) -> float | None:
        """The part of `rate` that one process lets through."""
        return None if self.rate is None else self.rate / self.processes

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Settings:
        return cls(**json.loads(text))


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches this address. Of names, only one is known to lead nowhere else."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

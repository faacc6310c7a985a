"""A server that somebody else runs, named by an environment variable."""

from __future__ import annotations

import contextlib
from typing import ClassVar, Self

from taskharbor.drivers.opening import redacted
from taskharbor.testing.servers.databases import Databases
from taskharbor.testing.servers.errors import ServerUnavailable


class GivenServer(Databases):
    """Has the methods of a server of ours, but refuses to stop. Drops the databases it made."""

    controllable = False
    running = True
    name: ClassVar[str]

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __str__(self) -> str:
        return redacted(self.url)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def create_database(self) -> str:
        url = super().create_database()
        self._made.append(url)
        return url

    def close(self) -> None:
        while self._made:
            # Somebody may still be connected, or the server gone: the next run does not mind a left-over.
            with contextlib.suppress(Exception):
                self.drop_database(self._made.pop())

    def start(self) -> None:
        raise self._refusal()

    def stop(self) -> None:
        raise self._refusal()

    def kill(self) -> None:
        raise self._refusal()

    def restart(self) -> None:
        raise self._refusal()

    def _refusal(self) -> ServerUnavailable:
        return ServerUnavailable(f"{self} is not ours to stop or start: unset the variable that names it")

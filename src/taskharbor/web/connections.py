"""Connections as the HTTP server sees them, before there is a request: bounded, and with a problem document for what
cannot be read. Whoever connects needs no token to get this far."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from taskharbor.web.problems import MEDIA_TYPE, Problem

MOST_HEADER_BYTES: Final = 65_536
HEADERS_S: Final = 20.0
"""For the address and the headers of a request to come; and for a new connection to send anything at all."""
_UNREADABLE: Final = "this is not a request of HTTP/1.1"
_TOO_MUCH: Final = f"the address and the headers have more than {MOST_HEADER_BYTES:,} bytes"
_TOO_SLOW: Final = f"the headers did not come within {HEADERS_S:g} seconds"


class Connection(HttpToolsProtocol):
    """uvicorn's own takes headers of any size, and waits for them for ever."""

    _patience: asyncio.TimerHandle | None = None
    _held = 0
    """Bytes since the request began, while its headers are not complete."""
    _refusal: Problem | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._patience is not None:
            self._held += len(data)
        super().data_received(data)
        # What came with the end of the headers is judged by `on_header`.
        if self._patience is not None and self._held > MOST_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(Problem("headers-too-large", _TOO_MUCH))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = 0
        if self._patience is None:
            self._wait()

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._wait_no_more()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or Problem("malformed", _UNREADABLE))

    def _grow(self, more: int) -> None:
        self._size += more
        if self._size > MOST_HEADER_BYTES:
            self._refusal = Problem("headers-too-large", _TOO_MUCH)
            raise ValueError(_TOO_MUCH)  # the parser stops, and asks for the answer above

    def _wait(self) -> None:
        self._held = 0
        self._patience = self.loop.call_later(HEADERS_S, self._give_up)

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self._refuse(Problem("timed-out", _TOO_SLOW))

    def _refuse(self, problem: Problem) -> None:
        self._wait_no_more()
        body = json.dumps(problem.document()).encode()
        head = (
            f"HTTP/1.1 {problem.status} {problem.title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

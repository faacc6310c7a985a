"""What every request passes through: bounds on its body, headers on its answer, a line in the log.

Plain ASGI, because this is on the way of every job that is enqueued.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskharbor.web.problems import Problem
from taskharbor.web.settings import Settings, is_loopback

BULK_PATH: Final = "/api/v1/jobs/bulk"
PRINCIPAL: Final = "taskharbor.principal"
"""Where in the scope of a request the log finds who made it."""
BODY_S: Final = 30.0
"""How long the next piece of a body may take."""
LOOK_S: Final = 0.5
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADLESS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_STREAM: Final = "/api/v1/events"
_LONGEST_PATH: Final = 200
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"cache-control", b"no-store"),
)
"""On every answer that does not say otherwise itself."""

access_log = logging.getLogger("taskharbor.web.access")
log = logging.getLogger("taskharbor.web")


class Shell:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(message)
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        except asyncio.CancelledError:
            if status or not scope["app"].state.stopping.is_set():
                raise
            # The server has waited long enough for this request, and goes.
            await Problem("busy", "the server is stopping").response()(scope, receive, sending)
        except ClientDisconnect:
            status = status or 499  # nobody is there to be told; for the log, as proxies write it
        except Problem as problem:
            if status:
                raise
            await problem.response()(scope, receive, sending)
        except Exception:
            instance = uuid.uuid4().urn
            log.exception("a request failed, and its client was told %s", instance)
            if status:  # too late to say so: the client sees the answer break off
                raise
            detail = "the server's log has a line with this instance: give it to whoever runs the server"
            await Problem("internal", detail, instance=instance).response()(scope, receive, sending)
        finally:
            if access_log.isEnabledFor(logging.INFO):
                _log(scope, status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        most = settings.max_bulk if scope["path"] == BULK_PATH else settings.max_body
        length = 0
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value[:20]) > most:
                raise too_large(most)
        if settings.open:
            _refuse_strangers(scope)

        is_whole = False

        async def receiving() -> Message:
            nonlocal length, is_whole
            if is_whole:
                return await receive()  # when the client leaves, whenever that is
            message = await _next_piece(receive, scope)
            is_whole = not message.get("more_body", False)
            if message["type"] == "http.request":
                length += len(message.get("body", b""))
                if length > most:
                    raise too_large(most)
            return message

        if scope["method"] != "HEAD" or not _answers_head(scope["path"]):
            await self._app(scope, receiving, send)
            return
        # A copy: the server below must go on knowing that no body belongs to this answer.
        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, receiving, _without_body(send))
        finally:
            if PRINCIPAL in as_get:
                scope[PRINCIPAL] = as_get[PRINCIPAL]


def _answers_head(path: str) -> bool:
    """Whether HEAD is GET without the body here. A stream would have no end; pages have no use for it."""
    return path in _HEADLESS or (path.startswith("/api/") and path != _STREAM)


def _without_body(send: Send) -> Send:
    async def sending(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sending


async def _next_piece(receive: Receive, scope: Scope) -> Message:
    """A part of the body. A client that stops in the middle is not waited for without end, and hardly at all by a
    server that is to stop."""
    stopping: asyncio.Event = scope["app"].state.stopping
    ends = time.monotonic() + BODY_S
    while True:
        try:
            async with asyncio.timeout(LOOK_S):
                return await receive()
        except TimeoutError:
            if stopping.is_set() or time.monotonic() >= ends:
                detail = f"nothing more of the body came for {BODY_S:g} seconds, or the server is stopping"
                raise Problem("timed-out", detail, headers={"Connection": "close"}) from None


def too_large(most: int) -> Problem:
    return Problem("too-large", f"the body is over {most:,} bytes", limit=most)


def _add_headers(message: Message) -> None:
    headers = list(message.get("headers", ()))
    present = {name.lower() for name, _ in headers}
    headers.extend(each for each in _HEADERS if each[0] not in present)
    message["headers"] = headers


def _refuse_strangers(scope: Scope) -> None:
    """Without tokens, being on this machine is what lets one in; a browser here also runs pages from elsewhere. Such
    a page can name a host of its own that leads here (DNS rebinding), or post a form."""
    host = _header(scope, b"host")
    if host is None or not is_local(host):
        raise Problem(
            "foreign-origin", "without tokens this server answers to localhost only: use it, or create a token"
        )
    if scope["method"] in _SAFE:
        return
    origin = _header(scope, b"origin")
    if origin is not None and not is_of(origin, host):
        raise Problem("foreign-origin", "the request was made by a page from elsewhere")
    if (_header(scope, b"sec-fetch-site") or "").lower() in ("cross-site", "same-site"):
        raise Problem("foreign-origin", "the request was made by a page from elsewhere")


def is_of(origin: str, host: str) -> bool:
    """Whether an `Origin` is that of the pages of this `Host`."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:  # such as an open bracket
        return False


def is_local(host: str) -> bool:
    """Whether a `Host` header names this machine by its loopback names."""
    try:
        return "@" not in host and is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _header(scope: Scope, wanted: bytes) -> str | None:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return next((value.decode("latin-1") for name, value in headers if name == wanted), None)


def _log(scope: Scope, status: int, seconds: float) -> None:
    """Never the query: it may hold what a user looked for."""
    principal = scope.get(PRINCIPAL)
    access_log.info(
        "%s %s %d %.1f ms%s",
        scope["method"],
        scope["path"][:_LONGEST_PATH],
        status,
        seconds * 1000,
        f" token {principal.token_id}" if principal is not None and principal.token_id else "",
        extra={} if principal is None or principal.tenant_id is None else {"tenant": principal.tenant_id},
    )

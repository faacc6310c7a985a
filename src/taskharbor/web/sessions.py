"""Sessions of the dashboard: a signed cookie that holds the id of a token, never the token.

The store is asked for the token at every request, so a session ends when its token is revoked. A session also carries
what every form must bring back (CSRF); one that nobody has logged in to carries that alone.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from fastapi import FastAPI
from itsdangerous import BadSignature, URLSafeSerializer
from starlette.requests import Request
from starlette.responses import Response

from taskharbor.web.settings import Settings
from taskharbor.web.shell import is_of

COOKIE: Final = "taskharbor_session"
_LONGEST: Final = 1_000
_WORDS: Final = 16


class Session(NamedTuple):
    token_id: str | None
    """None until somebody logs in, and always on a server that is open."""
    nonce: str
    until: int
    """Seconds since 1970."""


class Sessions:
    """Begins, reads and ends sessions. All processes of a server sign with one secret."""

    def __init__(self, settings: Settings) -> None:
        self._signer = URLSafeSerializer(settings.secret, salt="taskharbor.session")
        self._secret = settings.secret.encode()
        self._length_s = int(settings.session_hours * 3600)
        self._secure = settings.secure_cookies

    def begin(self, token_id: str | None = None) -> Session:
        """A new one with a nonce of its own: a session from before a login is never one after it."""
        return Session(token_id, secrets.token_urlsafe(_WORDS), int(time.time()) + self._length_s)

    def read(self, request: Request) -> Session | None:
        """The session that a request brings, unless it is over, or not ours."""
        text = request.cookies.get(COOKIE, "")
        if not text or len(text) > _LONGEST:
            return None
        try:
            given = self._signer.loads(text)
        except BadSignature:
            return None
        match given:
            case [str() | None as token_id, str(nonce), int(until)] if until > time.time():
                return Session(token_id, nonce, until)
        return None

    def write(self, request: Request, response: Response, session: Session) -> None:
        response.set_cookie(
            COOKIE,
            self._signer.dumps(list(session)),
            max_age=max(1, session.until - int(time.time())),
            httponly=True,
            samesite="strict",
            secure=self._secure or request.scope["scheme"] == "https",
        )

    def end(self, response: Response) -> None:
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")

    def csrf(self, session: Session) -> str:
        """What the forms of this session carry. It says nothing about the nonce."""
        return hmac.new(self._secret, f"csrf {session.nonce}".encode(), sha256).hexdigest()

    def is_ours(self, request: Request, session: Session | None, given: object) -> bool:
        """Whether a change was asked for by a page of this session: by what its form carries, and by where the
        browser says that it comes from."""
        if session is None or not isinstance(given, str) or not given.isascii():
            return False
        return hmac.compare_digest(self.csrf(session), given) and comes_from_here(request.headers)


def comes_from_here(headers: Mapping[str, str]) -> bool:
    """By the headers that browsers send and scripts cannot set. Where there are none, nothing speaks against it."""
    if headers.get("sec-fetch-site", "same-origin").lower() not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or is_of(origin, headers.get("host", ""))


def install(app: FastAPI) -> None:
    app.state.sessions = Sessions(app.state.settings)

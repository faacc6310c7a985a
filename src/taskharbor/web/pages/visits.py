"""A visit: who asks for a page, what they may do, and how they are answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, ParamSpec, TypeVar
from urllib.parse import quote, quote_from_bytes, urlsplit

from fastapi import Depends
from itsdangerous import BadSignature, URLSafeSerializer
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from taskharbor.core.contract import Driver
from taskharbor.core.tokens import ALL_TENANTS
from taskharbor.web.access import EVERYBODY, Access, Permission, Principal
from taskharbor.web.pages.rendering import THEMES, page
from taskharbor.web.pages.words import brought_back, short
from taskharbor.web.problems import Problem
from taskharbor.web.sessions import Session, Sessions
from taskharbor.web.shell import PRINCIPAL

SAID: Final = "taskharbor_said"
THEME: Final = "taskharbor_theme"
MOST_FIELDS: Final = 2_000
"""Of one form: a page of jobs, each with its box."""
_LONGEST_WORDS: Final = 300
_IN_PATHS: Final = "/:@!$&'()*+,;=~"
_IN_QUERIES: Final = _IN_PATHS + "%?"

P = ParamSpec("P")
T = TypeVar("T")
_WAYS: Final = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/dlq", "Dead letters"),
    ("/queues", "Queues"),
    ("/workers", "Workers"),
    ("/schedules", "Schedules"),
    ("/workflows", "Workflows"),
    ("/history", "History"),
)
_NOT_FOR_ONE_TENANT: Final = ("/workers", "/history")
"""Workers are no tenant's, and a lake holds the past of all."""


class LoginNeeded(Exception):
    """Whoever asks is not known. They are sent to the login, and from there to where they wanted to go."""


@dataclass(frozen=True, slots=True)
class Visit:
    request: Request
    principal: Principal
    session: Session
    is_new: bool
    """Whether the session is still to be given to the browser."""
    form: FormData | None = None

    @property
    def driver(self) -> Driver:
        found: Driver = self.request.app.state.driver
        return found

    @property
    def tenant(self) -> str | None:
        return self.principal.tenant_id

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the store without holding up the others."""
        found: T = await self.request.app.state.threads.run(function, *args, **kwargs)
        return found

    def text(self, name: str, longest: int = _LONGEST_WORDS) -> str:
        """A field of the form, or "" where there is none."""
        given = None if self.form is None else self.form.get(name)
        return given.strip()[:longest] if isinstance(given, str) else ""

    def raw(self, name: str) -> str:
        """The id or name of something, which a page has `carried`. It may begin with a space."""
        given = None if self.form is None else self.form.get(name)
        return brought_back(given) if isinstance(given, str) else ""

    def texts(self, name: str) -> list[str]:
        given = [] if self.form is None else self.form.getlist(name)
        return [brought_back(each) for each in given if isinstance(each, str)]

    def show(self, template: str, here: str, status: int = 200, **context: Any) -> HTMLResponse:
        """The page. `here` is the way of the navigation that leads to it."""
        sessions: Sessions = self.request.app.state.sessions
        said = _said(self.request)
        answer = page(template, {**self.context(), "here": here, "said": said, **context}, status)
        if self.is_new:
            sessions.write(self.request, answer, self.session)
        if said is not None:
            answer.delete_cookie(SAID, httponly=True, samesite="strict")
        return answer

    def context(self) -> dict[str, Any]:
        """What every template may use."""
        state = self.request.app.state
        principal = self.principal
        return {
            **anonymous(self.request),
            "principal": principal,
            "who": _who(principal),
            "csrf": state.sessions.csrf(self.session),
            "may": {permission.value: principal.may(permission) for permission in Permission},
            "governs": principal.may(Permission.GOVERN, every_tenant=True),
            "all_tenants": principal.tenant_id is None,
            "ways": [way for way in _WAYS if principal.tenant_id is None or way[0] not in _NOT_FOR_ONE_TENANT],
            "store": urlsplit(state.settings.url).scheme,
        }

    def back(self, path: str, words: str, kind: str = "good") -> Response:
        """To a page after a change, with a word about it."""
        answer = RedirectResponse(path, 303)
        signer = _signer(self.request)
        answer.set_cookie(SAID, signer.dumps([kind, words[:600]]), max_age=30, httponly=True, samesite="strict")
        return answer


def _who(principal: Principal) -> str:
    """The name of the token and what it is for. A name that says so already, as one by default does, is enough."""
    tenant = "all tenants" if principal.tenant_id is None else short(principal.tenant_id, 30)
    rights = f"{principal.role.value} of {tenant}"
    by_default = f"{principal.role.value} of {principal.tenant_id or ALL_TENANTS}"
    return rights if principal.name in ("", rights, by_default) else f"{short(principal.name, 30)}, {rights}"


def anonymous(request: Request) -> dict[str, Any]:
    """What the pages use that need no login."""
    theme = request.cookies.get(THEME, "auto")
    return {
        "theme": theme if theme in THEMES else "auto",
        "whole_path": asked_for(request),
        "principal": None,
        "said": None,
        "here": "",
    }


def asked_for(request: Request) -> str:
    """The address of this request, to be asked for again. Ids of jobs in it may have any characters."""
    path = quote(request.scope["path"], safe=_IN_PATHS, errors="replace")
    query = quote_from_bytes(request.scope["query_string"], safe=_IN_QUERIES)
    return f"{path}?{query}" if query else path


def _signer(request: Request) -> URLSafeSerializer:
    return URLSafeSerializer(request.app.state.settings.secret, salt="taskharbor.said")


def _said(request: Request) -> Mapping[str, str] | None:
    text = request.cookies.get(SAID, "")
    if not text or len(text) > 4_000:
        return None
    try:
        match _signer(request).loads(text):
            case [str(kind), str(words)]:
                return {"kind": kind, "words": words}
    except BadSignature:
        pass
    return None


async def visitor(request: Request) -> Visit:
    """Whoever asks for a page; LoginNeeded if they are not known."""
    access: Access = request.app.state.access
    sessions: Sessions = request.app.state.sessions
    session = sessions.read(request)
    if await access.is_open():
        principal: Principal | None = EVERYBODY
    elif session is None or session.token_id is None:
        raise LoginNeeded
    else:
        principal = await access.of_session(session.token_id)
        if principal is None:
            raise LoginNeeded
    assert principal is not None
    request.scope[PRINCIPAL] = principal
    principal.require(Permission.READ)
    return Visit(request, principal, session or sessions.begin(), is_new=session is None)


async def actor(request: Request) -> Visit:
    """Whoever changes something, with a form that a page of their own session has sent."""
    visit = await visitor(request)
    form = await request.form(max_files=0, max_fields=MOST_FIELDS)
    sessions: Sessions = request.app.state.sessions
    given = request.headers.get("x-csrf-token") or form.get("csrf")
    if visit.is_new or not sessions.is_ours(request, visit.session, given):
        raise Problem("foreign-origin", "the form is from another session: load the page again, and send it then")
    return Visit(request, visit.principal, visit.session, visit.is_new, form)


Looking = Annotated[Visit, Depends(visitor)]
Acting = Annotated[Visit, Depends(actor)]


def local(path: str | None, otherwise: str = "/") -> str:
    """A path of ours that was carried through a form; anything else becomes `otherwise`."""
    if not path or not path.startswith("/") or path[1:2] in ("/", "\\") or not path.isascii() or not path.isprintable():
        return otherwise
    return otherwise if "\\" in path or len(path) > 2_000 else path


def to_login(request: Request) -> Response:
    """To the login, unless the browser just did not bring the cookie: it leaves a strict one at home when a link of
    another site leads here, and brings it when our own page asks again."""
    if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
        return page("bounce.html", anonymous(request))
    wanted = asked_for(request)
    ask = f"?next={quote(wanted, safe='')}" if request.method == "GET" and wanted != "/" else ""
    if request.headers.get("hx-request"):
        # A fragment of the login inside a page would be a riddle: the whole page goes there.
        return Response(status_code=204, headers={"HX-Redirect": "/login"})
    return RedirectResponse(f"/login{ask}", 303)

"""In and out, and the colours."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from taskharbor.web.access import Access
from taskharbor.web.pages.rendering import THEMES, page
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import THEME, Acting, anonymous, local
from taskharbor.web.problems import Problem
from taskharbor.web.sessions import Session, Sessions

router = page_router()
_LONGEST_TOKEN: Final = 200
_YEAR_S: Final = 365 * 86_400


@router.get("/login")
async def login_page(request: Request) -> Response:
    sessions: Sessions = request.app.state.sessions
    access: Access = request.app.state.access
    wanted = local(request.query_params.get("next"))
    session = sessions.read(request)
    if await access.is_open():
        return RedirectResponse("/", 303)
    if session is not None and session.token_id is not None and await access.of_session(session.token_id) is not None:
        return RedirectResponse(wanted, 303)
    return _ask(request, session, wanted)


@router.post("/login")
async def login(request: Request) -> Response:
    """The token comes in the body, never in an address; what is kept of it is its id."""
    sessions: Sessions = request.app.state.sessions
    access: Access = request.app.state.access
    form = await request.form(max_files=0, max_fields=10)
    session = sessions.read(request)
    wanted = local(_text(form.get("next")))
    if not sessions.is_ours(request, session, form.get("csrf")):
        return _ask(request, session, wanted, "The page was too old, or cookies are off: try again.", 403)
    principal = await access.of_secret(_text(form.get("token"))[:_LONGEST_TOKEN])
    if principal is None:
        return _ask(request, session, wanted, "The token is unknown, revoked or expired.", 401)
    answer = RedirectResponse(wanted, 303)
    sessions.write(request, answer, sessions.begin(principal.token_id))
    return answer


def _ask(
    request: Request, session: Session | None, wanted: str, problem: str | None = None, status: int = 200
) -> Response:
    sessions: Sessions = request.app.state.sessions
    fresh = session or sessions.begin()
    context = {**anonymous(request), "csrf": sessions.csrf(fresh), "next": wanted, "problem": problem}
    answer = page("login.html", context, status)
    if session is None:
        sessions.write(request, answer, fresh)
    return answer


@router.post("/logout")
async def logout(visit: Acting) -> Response:
    sessions: Sessions = visit.request.app.state.sessions
    answer = RedirectResponse("/login", 303)
    sessions.end(answer)
    return answer


@router.post("/theme")
async def theme(visit: Acting) -> Response:
    chosen = visit.text("theme")
    if chosen not in THEMES:
        raise Problem("invalid", "colours are light, dark or auto")
    answer = RedirectResponse(local(visit.text("next", 2_000)), 303)
    answer.set_cookie(THEME, chosen, max_age=_YEAR_S, httponly=True, samesite="strict")
    return answer


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""

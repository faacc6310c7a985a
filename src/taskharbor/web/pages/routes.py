"""How pages answer when something is wrong: with a page. Programs under /api get problem documents instead."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from taskharbor.core.errors import TaskHarborError
from taskharbor.web import convertors  # noqa: F401  # pages have names in their addresses as well
from taskharbor.web.pages.rendering import page, piece
from taskharbor.web.pages.visits import LoginNeeded, anonymous, to_login
from taskharbor.web.problems import Problem, of_request, problem_of

log = logging.getLogger("taskharbor.web")
_FOR_PROGRAMS: Final = ("/api/", "/metrics", "/healthz", "/readyz", "/openapi.json", "/static/")
_KEPT: Final = ("Retry-After", "Allow")
"""Headers of a problem that its page has as well."""
_INTO_THE_LINE: Final = {
    "HX-Retarget": "#said",
    "HX-Reselect": "unset",
    "HX-Reswap": "innerHTML",
    "HX-Push-Url": "false",
}
"""Where htmx puts the problem of a form, whatever the form has asked for."""
_TITLES: Final = {
    401: "Log in first",
    403: "This is not allowed",
    404: "There is nothing here",
    405: "This cannot be asked for like that",
    413: "That was too much",
    422: "That cannot be done",
    429: "Too much at once",
    500: "Something went wrong",
    503: "The store does not answer",
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Handler:
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await answer(request)
            except ClientDisconnect:
                raise
            except LoginNeeded:
                return to_login(request)
            except (Problem, TaskHarborError, RequestValidationError, HTTPException) as error:
                return told(request, problem_of(error))
            except Exception:
                instance = uuid.uuid4().urn
                log.exception("a page failed, and its reader was told %s", instance)
                detail = "The server's log has a line with this number: give it to whoever runs the server."
                return told(request, Problem("internal", detail, instance=instance))

        return handle


def page_router() -> APIRouter:
    return APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=Response)


def told(request: Request, problem: Problem) -> Response:
    """The problem as a page; to a form that a script has sent, as the line of its page that says what came of it. The
    form stays as it was filled in."""
    title = _TITLES.get(problem.status, problem.title)
    detail = problem.detail or "Go back, and try another way."
    context = {"title": title, "detail": _sentence(detail), "instance": problem.members.get("instance")}
    if request.method == "POST" and request.headers.get("hx-request"):
        answer = piece("refused.html", context, problem.status)
        answer.headers.update(_INTO_THE_LINE)
    else:
        answer = page("error.html", {**anonymous(request), **context}, problem.status)
    answer.headers.update({name: value for name, value in problem.headers.items() if name in _KEPT})
    return answer


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "…")) else ".")


def install_errors(app: FastAPI) -> None:
    """Addresses that lead nowhere get a page too, where a person asks for one."""
    before: Any = app.exception_handlers[HTTPException]

    async def lost(request: Request, error: Exception) -> Response:
        wants_page = "text/html" in request.headers.get("accept", "")
        if wants_page and not request.scope["path"].startswith(_FOR_PROGRAMS):
            return told(request, of_request(request, error))
        answer: Response = await before(request, error)
        return answer

    app.add_exception_handler(HTTPException, lost)

"""What a client is told when something is wrong: problem documents (RFC 9457), one table of kinds.

A document holds nothing about the store, and nothing of jobs that the token may not see.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from taskharbor.core import errors

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 2
MOST_FAULTS: Final = 20


class Kind(NamedTuple):
    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed": Kind(400, "The request cannot be read"),
    "unauthenticated": Kind(401, "A valid token is needed"),
    "forbidden": Kind(403, "The token does not allow this"),
    "foreign-origin": Kind(403, "The request comes from elsewhere"),
    "not-found": Kind(404, "There is nothing here"),
    "method-not-allowed": Kind(405, "The method does not fit the address"),
    "timed-out": Kind(408, "The request did not come in time"),
    "idempotency-conflict": Kind(409, "The key belongs to another job"),
    "duplicate-job": Kind(409, "The key is taken"),
    "lease-mismatch": Kind(409, "Somebody else holds the job"),
    "lease-expired": Kind(409, "The lease has ended"),
    "not-inflight": Kind(409, "The job is not leased"),
    "wrong-state": Kind(409, "The job is not in a state for this"),
    "too-large": Kind(413, "The request is too large"),
    "unsupported-media-type": Kind(415, "The content type does not fit"),
    "invalid": Kind(422, "The request is not valid"),
    "rate-limited": Kind(429, "Too many jobs at once"),
    "queue-full": Kind(429, "Too many jobs wait already"),
    "too-many-streams": Kind(429, "Too many streams are open"),
    "headers-too-large": Kind(431, "The headers are too large"),
    "internal": Kind(500, "Something went wrong here"),
    "store-unavailable": Kind(503, "The store cannot be used now"),
    "store-moved": Kind(503, "The store has moved"),
    "busy": Kind(503, "The server has more to do than it can"),
}
_BY_STATUS: Final = {400: "malformed", 404: "not-found", 405: "method-not-allowed", 413: "too-large"}
_LATER: Final = frozenset(
    {"rate-limited", "queue-full", "too-many-streams", "store-unavailable", "store-moved", "busy"}
)
"""Kinds that come with a `Retry-After`."""

_OF_ERRORS: Final[tuple[tuple[type[errors.TaskHarborError], str], ...]] = (
    # The first that fits: a subclass stands before its root.
    (errors.PayloadTooLarge, "too-large"),
    (errors.InvalidInput, "invalid"),
    (errors.JobNotFound, "not-found"),
    (errors.ScheduleNotFound, "not-found"),
    (errors.WorkflowNotFound, "not-found"),
    (errors.JobNotInflight, "not-inflight"),
    (errors.LeaseExpired, "lease-expired"),
    (errors.LeaseMismatch, "lease-mismatch"),
    (errors.DuplicateJob, "duplicate-job"),
    (errors.IdempotencyConflict, "idempotency-conflict"),
    (errors.StoreMoved, "store-moved"),
    (errors.StoreError, "store-unavailable"),
)
_FIXED: Final = {
    # Words that do not depend on what was asked for, so that a foreign job answers exactly as one that is not there.
    "not-found": "no such job, queue or page for this token",
    "store-unavailable": "the store did not answer as it should: try again later; the server's log says more",
    "store-moved": "the store of this server has moved to another one, or is on its way: whoever runs the server must "
    "start it on the new one, which the server's log names",
}
SAID_AGAIN_S: Final = 60.0

log = logging.getLogger("taskharbor.web")


class Problem(Exception):
    """Raised anywhere in a request, and sent as a problem document."""

    def __init__(
        self, slug: str, detail: str | None = None, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        self.slug = slug
        self.status, self.title = KINDS[slug]
        self.detail = detail or _FIXED.get(slug, "")
        self.headers = dict(headers or {})
        self.members = members
        if slug in _LATER:
            self.headers.setdefault("Retry-After", str(RETRY_AFTER_S))
        if slug == "unauthenticated":
            self.headers.setdefault("WWW-Authenticate", 'Bearer realm="taskharbor"')
        super().__init__(f"{slug}: {self.detail}")

    def document(self) -> dict[str, Any]:
        document = {"type": f"/problems/{self.slug}", "title": self.title, "status": self.status}
        return document | ({"detail": self.detail} if self.detail else {}) | self.members

    def response(self) -> Response:
        # In ASCII: whatever is in the words, even half of a surrogate pair, can be sent.
        return Response(json.dumps(self.document()), self.status, self.headers, MEDIA_TYPE)


def not_found() -> Problem:
    return Problem("not-found")


def of_error(error: errors.TaskHarborError) -> Problem:
    """The problem that an error of ours is to a client. Unknown ones are the server's fault."""
    for kind, slug in _OF_ERRORS:
        if isinstance(error, kind):
            if slug in _FIXED:
                return Problem(slug)
            existing = getattr(error, "existing_id", None)
            return Problem(slug, str(error), **({} if existing is None else {"existing_id": existing}))
    raise error


def of_faults(faults: Iterable[Mapping[str, Any]], where: str = "") -> Problem:
    """What pydantic found, told without what was sent."""
    told = []
    for fault in faults:
        if fault["type"] == "json_invalid":
            return Problem("malformed", f"{where or 'the body'} is not JSON: {_words(fault)}")
        path = ".".join(str(part) for part in ((where, *fault["loc"]) if where else fault["loc"]))
        told.append({"at": _clean(path)[:200], "problem": _words(fault)})
    return Problem(
        "invalid", "; ".join(f"{fault['at']}: {fault['problem']}" for fault in told[:3]), errors=told[:MOST_FAULTS]
    )


def _words(fault: Mapping[str, Any]) -> str:
    return _clean(str(fault["msg"]).removeprefix("Value error, ").removeprefix("Invalid JSON: "))[:300]


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def of_validation(error: ValidationError, where: str = "body") -> Problem:
    return of_faults(error.errors(include_url=False, include_context=False, include_input=False), where)


class Troubles:
    """What is wrong with the store, for the log. Clients are not told, and ask again and again: it is said once, and
    of a store that is away once a minute as long as somebody asks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[type[errors.StoreError], float] = {}

    def say(self, error: errors.StoreError) -> None:
        kind, now = type(error), self._clock()
        has_moved = isinstance(error, errors.StoreMoved)
        said = self._said.get(kind)
        if isinstance(error, errors.DriverClosed) or (said is not None and (has_moved or now - said < SAID_AGAIN_S)):
            return
        self._said[kind] = now
        if has_moved:
            log.error("this server takes no jobs and gives none out: %s", error)
        else:
            log.warning("the store cannot be used, and clients are told to come again: %s", error)


def install(app: FastAPI) -> None:
    """Every error of a request becomes a problem document; what is nobody's fault but ours is left to the shell."""

    async def told(request: Request, error: Exception) -> Response:
        return of_request(request, error).response()

    app.state.troubles = Troubles()
    for kind in (Problem, errors.TaskHarborError, RequestValidationError, ValidationError, HTTPException):
        app.add_exception_handler(kind, told)


def of_request(request: Request, error: Exception) -> Problem:
    """The problem that an error is in answer to this request."""
    problem = problem_of(error)
    if isinstance(error, errors.StoreError):
        request.app.state.troubles.say(error)
    if problem.status == 405:
        # The error knows the methods of the first route that fits the address, and there may be another.
        path, known = request.scope["path"], request.app.state.addresses
        there = {method for form, methods in known if form.match(path) for method in methods}
        problem.headers["Allow"] = ", ".join(sorted(there)) or problem.headers["Allow"]
    return problem


def problem_of(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case errors.TaskHarborError():
            return of_error(error)
        case RequestValidationError():
            return of_faults(error.errors())
        case ValidationError():
            return of_validation(error)
        case HTTPException():
            slug = _BY_STATUS.get(error.status_code, "malformed" if error.status_code < 500 else "internal")
            return Problem(slug, headers=error.headers)
        case _:
            raise error


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that an operation may answer with, for its OpenAPI description."""
    schema = {"$ref": "#/components/schemas/Problem"}
    described: dict[int | str, dict[str, Any]] = {}
    for status in sorted({401, 403, 422, 503, *statuses}):
        titles: Sequence[str] = [kind.title for kind in KINDS.values() if kind.status == status]
        described[status] = {"description": "; ".join(titles), "content": {MEDIA_TYPE: {"schema": schema}}}
    return described

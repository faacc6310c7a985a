"""Many jobs in one request, as JSON lines. The body is read as it comes, and never held as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError

from taskharbor.core.errors import StoreError, TaskHarborError
from taskharbor.web.access import Permission, Principal, allow
from taskharbor.web.api import API
from taskharbor.web.api import schemas as taken
from taskharbor.web.api import shapes as given
from taskharbor.web.api.bodies import answer, check_type
from taskharbor.web.intake import Coming, Intake, described, tenant_of
from taskharbor.web.limits import Backpressure
from taskharbor.web.openapi import takes
from taskharbor.web.problems import Problem, documented, of_validation
from taskharbor.web.threads import Threads

NDJSON: Final = "application/x-ndjson"
MOST_LINES: Final = 2_000
MOST_BYTES: Final = 4 * 1024 * 1024
"""Lines, and bytes, that go to the store together."""
MOST_TOLD: Final = 100
"""Rejected lines that the answer tells of; the rest are counted."""

router = APIRouter(prefix=API, tags=["jobs"])


class Line(NamedTuple):
    number: int
    text: bytes | None
    """None for one that was too long to be kept."""


@dataclass
class Tally:
    enqueued: int = 0
    existed: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)
    rejected_count: int = 0
    stopped_at: int | None = None

    def reject(self, line: int, problem: str) -> None:
        self.rejected_count += 1
        if len(self.rejected) < MOST_TOLD:
            self.rejected.append({"line": line, "problem": problem})

    def document(self) -> dict[str, Any]:
        return {
            "enqueued": self.enqueued,
            "existed": self.existed,
            "rejected": self.rejected,
            "rejected_count": self.rejected_count,
            "stopped_at": self.stopped_at,
        }


@router.post(
    "/jobs/bulk",
    response_model=given.BulkAnswer,
    responses=documented(400, 413, 415, 429),
    openapi_extra=takes(taken.NewJob, NDJSON),
)
async def enqueue_many(
    request: Request,
    who: Annotated[Principal, Depends(allow(Permission.ENQUEUE))],
    query: Annotated[taken.BulkQuery, Query()],
) -> Response:
    """Enqueue the jobs of a body with one JSON object a line. A bad line is left out, and told of; with
    `on_error=stop` it ends the work. What was enqueued before the request broke off stays: send it again with keys,
    and no job comes twice."""
    check_type(request, NDJSON, "application/jsonl", "application/ndjson")
    state = request.app.state
    work = _Work(state.intake, tenant_of(who), stop=query.on_error == "stop")
    backpressure: Backpressure = state.backpressure
    threads: Threads = state.threads
    has_begun = False
    async for lines in chunks(request.stream(), state.settings.max_body):
        if has_begun:
            await _still(request, work)
        has_begun = True
        left = lines
        while left:
            room = await _room(backpressure, work, left) if backpressure.is_on else len(left)
            await threads.run(work.take, left[:room])
            left = left[room:]
            if work.tally.stopped_at is not None:
                return answer(work.tally.document())
    return answer(work.tally.document())


async def _still(request: Request, work: _Work) -> None:
    """A body may take an hour to come: a token that is revoked meanwhile ends it."""
    try:
        await request.app.state.access.again(request, Permission.ENQUEUE)
    except Problem as problem:
        problem.members |= work.tally.document()
        raise


async def _room(backpressure: Backpressure, work: _Work, lines: Sequence[Line]) -> int:
    try:
        return await backpressure.take(work.tenant_id, len(lines))
    except Problem as problem:
        problem.members |= work.tally.document() | {"next_line": lines[0].number}
        problem.detail += f"; lines before {lines[0].number} are done: go on with that one"
        raise


class _Work:
    """What is done with the lines, a chunk at a time, in a thread."""

    def __init__(self, intake: Intake, tenant_id: str, *, stop: bool) -> None:
        self._intake = intake
        self.tenant_id = tenant_id
        self._stop = stop
        self.tally = Tally()

    def take(self, lines: Sequence[Line]) -> None:
        coming: list[Coming] = []
        numbers: list[int] = []
        refused: dict[int, str] = {}
        validate = taken.NewJob.__pydantic_validator__.validate_json
        for line in lines:
            try:
                if line.text is None:
                    raise Problem("too-large", "the line is too long")
                coming.append(described(validate(line.text), self.tenant_id))
                numbers.append(line.number)
            except (ValidationError, TaskHarborError, Problem) as error:
                refused[line.number] = words(error)
                if self._stop:
                    break
        if coming:
            refused |= self._put(coming, numbers)
        for number in sorted(refused):
            self.tally.reject(number, refused[number])
            if self._stop:
                # What stands before a bad line went in first, and may have had a worse one in it.
                self.tally.stopped_at = number
                break

    def _put(self, coming: Sequence[Coming], numbers: Sequence[int]) -> dict[int, str]:
        refused: dict[int, str] = {}
        answers = self._intake.put_all(coming, stop=self._stop)
        for number, each in zip(numbers, answers, strict=False):
            if isinstance(each, Exception):
                if isinstance(each, StoreError) or not isinstance(each, TaskHarborError):
                    raise each
                refused[number] = words(each)
            elif each.existed:
                self.tally.existed += 1
            else:
                self.tally.enqueued += 1
        return refused


def words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return of_validation(error, "").detail
    return error.detail if isinstance(error, Problem) else str(error)


async def chunks(stream: AsyncIterator[bytes], longest: int) -> AsyncIterator[Sequence[Line]]:
    """The lines of a body, some at a time, without the blank ones. However long a line is, no more than `longest` of
    it is ever held."""
    lines: list[Line] = []
    size = 0
    number = 0
    rest = b""
    skipping = False
    async for data in stream:
        *whole, rest = (rest + data).split(b"\n")
        for text in whole:
            number += 1
            if skipping or len(text) > longest:
                lines.append(Line(number, None))
                skipping = False
            elif text and not text.isspace():
                lines.append(Line(number, text))
                size += len(text)
            if len(lines) >= MOST_LINES or size >= MOST_BYTES:
                yield lines
                lines, size = [], 0
        if len(rest) > longest:
            skipping, rest = True, b""
    if skipping:
        lines.append(Line(number + 1, None))
    elif rest.strip():
        lines.append(Line(number + 1, rest))
    if lines:
        yield lines

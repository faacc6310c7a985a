"""`GET /api/v1/events`: what happens to jobs, as it happens."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from taskharbor.core.answers import Glance
from taskharbor.core.errors import InvalidCursor, StoreError
from taskharbor.web import streaming
from taskharbor.web.access import Access, Permission, Principal, allow
from taskharbor.web.api import API
from taskharbor.web.api.schemas import Name
from taskharbor.web.following import Feed
from taskharbor.web.problems import Problem, documented
from taskharbor.web.streaming import KEEP_ALIVE_S, MEDIA_TYPE, STILL_HERE
from taskharbor.web.threads import Threads

router = APIRouter(prefix=API, tags=["watching"])
install, lifespan = streaming.install, streaming.lifespan

COME_BACK_MS: Final = 2_000
AFTER_TROUBLE_S: Final = 2.0
MOST_SECONDS: Final = 86_400


class EventsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    queue: Name | None = Field(None, description="Only what happens in this queue.")
    seconds: float | None = Field(None, ge=0, le=MOST_SECONDS, description="End after this time; without it, never.")


@router.get(
    "/events",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events named `fact`, whose data is one JSON object each",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
        **documented(),
    },
)
async def events(
    request: Request,
    principal: Annotated[Principal, Depends(allow(Permission.READ))],
    query: Annotated[EventsQuery, Query()],
    last_event_id: Annotated[
        str | None, Header(max_length=500, description="Go on behind this event, as browsers ask by themselves")
    ] = None,
) -> Response:
    """One event for each attempt that ended and each job that reached its end, of the token's tenant. A client that
    comes back with `Last-Event-ID` misses nothing; the last few events may be told again."""
    feed: Feed = request.app.state.feed
    threads: Threads = request.app.state.threads
    if last_event_id:
        cursor = last_event_id
        await threads.run(feed.after, cursor)  # one that is not ours is refused before anything is sent
    else:
        cursor = await threads.run(feed.cursor)
    until = None if query.seconds is None else time.monotonic() + query.seconds
    return streaming.stream(request, _facts(request, principal, cursor, query.queue, until))


async def _facts(
    request: Request, principal: Principal, cursor: str, queue: str | None, until: float | None
) -> AsyncIterator[bytes]:
    feed: Feed = request.app.state.feed
    threads: Threads = request.app.state.threads
    access: Access = request.app.state.access
    yield f"retry: {COME_BACK_MS}\n".encode() + streaming.mark(cursor)
    told = cursor
    async with feed.subscribe() as news:
        while not news.ended:
            wait_s = KEEP_ALIVE_S
            try:
                page = feed.at_hand(cursor)
                if page is None:
                    page = await threads.run(feed.after, cursor)
                mine = [row for row in page.rows if principal.sees(row.tenant_id) and queue in (None, row.queue)]
                if mine:
                    await access.of_request(request)  # the token may have been revoked since
                    told = page.cursor
                    yield _told(mine, page.cursor)
                cursor = page.cursor  # not before: a store that goes away in between takes nothing with it
                if page.rows and (until is None or time.monotonic() < until):
                    continue
            except (InvalidCursor, Problem):
                return
            except StoreError:
                wait_s = AFTER_TROUBLE_S  # the feed's thread says so in the log
            if until is not None:
                wait_s = min(wait_s, until - time.monotonic())
                if wait_s <= 0:
                    return
            if not await news.wait(wait_s) and not news.ended and wait_s == KEEP_ALIVE_S:
                if not await _is_welcome(access, request):
                    return
                yield STILL_HERE if told == cursor else streaming.mark(cursor)
                told = cursor


async def _is_welcome(access: Access, request: Request) -> bool:
    try:
        await access.of_request(request)
    except Problem:
        return False
    except StoreError:
        pass  # nobody can tell at the moment, and nothing is sent either
    return True


def _told(rows: Sequence[Glance], cursor: str) -> bytes:
    """The last one carries the place: what was sent of a page that broke off is sent again."""
    last = len(rows) - 1
    return b"".join(
        streaming.event(json.dumps(fact(row)), name="fact", id=cursor if number == last else None)
        for number, row in enumerate(rows)
    )


def fact(row: Glance) -> dict[str, Any]:
    """A row of the feed as clients see it."""
    started = row.started_at if row.attempt_no is not None else None
    return {
        "job_id": row.job_id,
        "type": row.type,
        "queue": row.queue,
        "tenant_id": row.tenant_id,
        "outcome": row.outcome.value,
        "status": row.status.value,
        "at": row.at.isoformat(),
        "attempt": row.attempt_no,
        "worker": row.worker or None,
        "code": row.code,
        "wait_s": None if started is None else max(0.0, (started - row.due_at).total_seconds()),
        "run_s": None if started is None else max(0.0, (row.at - started).total_seconds()),
    }

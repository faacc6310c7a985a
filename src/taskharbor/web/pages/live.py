"""The overview as it changes: server-sent events, once a second, made once for everybody who sees the same."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Final

from fastapi import FastAPI
from starlette.responses import Response, StreamingResponse

from taskharbor.core.errors import StoreError
from taskharbor.web.access import Access
from taskharbor.web.pages.overview import snapshot
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Looking, Visit
from taskharbor.web.problems import Problem

router = page_router()

EVERY_S: Final = 1.0
MOST_STREAMS: Final = 200
LONGEST_S: Final = 3600.0
"""Then the browser asks anew."""


class Streams:
    """How many there are, and what the last second looked like."""

    def __init__(self) -> None:
        self.count = 0
        self._texts: dict[str | None, tuple[float, asyncio.Task[str]]] = {}

    async def text(self, app: FastAPI, tenant: str | None) -> str:
        """The event of this second. Whoever asks within it is given the same."""
        made, task = self._texts.get(tenant, (0.0, None))
        now = time.monotonic()
        if task is None or now - made >= EVERY_S * 0.9:
            task = asyncio.create_task(_made(app, tenant))
            self._texts[tenant] = now, task
            for key in [key for key, (then, _) in self._texts.items() if now - then > 60]:
                del self._texts[key]
        return await asyncio.shield(task)


async def _made(app: FastAPI, tenant: str | None) -> str:
    try:
        found = await app.state.threads.run(snapshot, app, tenant)
    except StoreError:
        # The page says that it stands still; what is wrong with the store is for the log.
        return "event: still\ndata: {}\n\n"
    return f"event: overview\ndata: {json.dumps(found)}\n\n"


@router.get("/live")
async def live(visit: Looking) -> Response:
    streams: Streams = visit.request.app.state.streams
    if streams.count >= MOST_STREAMS:
        raise Problem("too-many-streams", "too many pages are open: close some, or load this one again later")
    return StreamingResponse(_stream(visit, streams), media_type="text/event-stream")


async def _stream(visit: Visit, streams: Streams) -> AsyncIterator[str]:
    app = visit.request.app
    stopping: asyncio.Event = app.state.stopping
    began = time.monotonic()
    streams.count += 1
    try:
        yield "retry: 2000\n\n"
        while not stopping.is_set() and time.monotonic() - began < LONGEST_S:
            if not await _still_welcome(visit):  # all that ask in the same moment share one look at the store
                return
            yield await streams.text(app, visit.tenant)
            try:
                await asyncio.wait_for(stopping.wait(), EVERY_S)
            except TimeoutError:
                continue
    finally:
        streams.count -= 1


async def _still_welcome(visit: Visit) -> bool:
    access: Access = visit.request.app.state.access
    try:
        if visit.principal.via == "open":
            return await access.is_open()
        return await access.of_session(visit.principal.token_id) == visit.principal
    except StoreError:
        return True  # it cannot be asked; what is shown comes from it as well

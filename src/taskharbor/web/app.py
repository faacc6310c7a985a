"""Puts the parts together. Shared between requests, on `app.state`:

`driver`, `settings`, `threads` (`await threads.run(driver.list, …)`), `access`, `intake`, `census`, `feed`, `history`,
and `stopping`, an event that is set when the server is told to stop: whatever streams or waits ends then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from taskharbor import __version__
from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver
from taskharbor.web import following, openapi, pages, problems, sessions, watching
from taskharbor.web.access import Access
from taskharbor.web.api import bulk, dlq, events, fleet, health, jobs, leases, metrics, queues, stats
from taskharbor.web.pages.history import HistoryPages
from taskharbor.web.settings import ENVIRONMENT, Settings
from taskharbor.web.shell import Shell
from taskharbor.web.threads import Threads

_PARTS: Final[tuple[ModuleType, ...]] = (
    # Each may have a `router`, a function `install(app)`, and an async context manager `lifespan(app)`.
    *(watching, following, sessions),
    *(jobs, bulk, leases, dlq, queues, fleet, stats, metrics, events, health),
    pages,
)


def create_app(settings: Settings, driver: Driver | None = None, history: HistoryPages | None = None) -> FastAPI:
    """The application on a store. It opens the store of the settings unless it is given one, and closes only what it
    opened. `history` reads the pipeline's lake."""
    store = open_driver(settings.url) if driver is None else driver

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if driver is None:
                stack.callback(store.close)
            stack.callback(app.state.threads.close)
            for part in _PARTS:
                if hasattr(part, "lifespan"):
                    await stack.enter_async_context(part.lifespan(app))
            yield
            app.state.stopping.set()

    app = FastAPI(
        title="TaskHarbor",
        version=__version__,
        description="Jobs, leases and queues over HTTP. Errors are problem documents (RFC 9457).",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.driver = store
    app.state.history = history
    app.state.threads = Threads(settings.threads)
    app.state.access = Access(store, settings, app.state.threads)
    app.state.stopping = asyncio.Event()
    problems.install(app)
    openapi.install(app)
    app.add_middleware(Shell, settings=settings)
    for part in _PARTS:
        if hasattr(part, "install"):
            part.install(app)
        if hasattr(part, "router"):
            app.include_router(part.router)
    app.state.addresses = [
        (route.path_regex, route.methods)
        for part in _PARTS
        for route in (_all_of(part.router) if hasattr(part, "router") else ())
    ]
    return app


def _all_of(router: APIRouter) -> Iterator[APIRoute]:
    """Its routes, and those of routers inside it."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield route
        elif isinstance(inside := getattr(route, "original_router", None), APIRouter):
            yield from _all_of(inside)


def from_environment() -> FastAPI:
    """For `uvicorn --factory taskharbor.web:from_environment`, with the settings as JSON in the environment."""
    return create_app(Settings.from_text(os.environ[ENVIRONMENT]))

"""Every page in its place, and what they share."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from taskharbor.web.pages import (
    assets,
    bulk,
    dlq,
    door,
    history,
    job,
    jobs,
    live,
    overview,
    queues,
    schedules,
    workers,
    workflows,
)
from taskharbor.web.pages.groups import Groups
from taskharbor.web.pages.rendering import environment
from taskharbor.web.pages.routes import install_errors

router = APIRouter()
for part in (assets, door, overview, live, jobs, bulk, job, dlq, queues, workers, schedules, workflows, history):
    router.include_router(part.router)


def install(app: FastAPI) -> None:
    environment().globals["asset"] = assets.address
    app.state.groups = Groups(app.state.driver)
    app.state.streams = live.Streams()
    install_errors(app)

"""The first page: whether work gets done, and where it does not."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from taskharbor.web.pages.figures import charts, figures
from taskharbor.web.pages.rendering import rendered
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Looking

router = page_router()


@router.get("/")
async def overview(visit: Looking) -> Response:
    state = visit.request.app.state
    found = await visit.run(figures, state.driver, state.census, state.feed, visit.tenant)
    drawn = charts(state.feed, visit.tenant)
    # In an attribute, where it is escaped like anything else.
    return visit.show("overview.html", "/", found=found, now=found.now, charts=json.dumps(drawn), dead=None)


def snapshot(app: FastAPI, tenant: str | None) -> dict[str, Any]:
    """What changes on the page: pieces of it as they look now, by their ids, and the plots."""
    state = app.state
    found = figures(state.driver, state.census, state.feed, tenant)
    context = {"found": found, "now": found.now, "all_tenants": tenant is None}
    return {
        "parts": {
            "tiles": rendered("overview_tiles.html", context),
            "queues": rendered("overview_queues.html", context),
        },
        "charts": charts(state.feed, tenant),
    }

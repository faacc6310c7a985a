"""What the pipeline's lake knows of the past. Who reads lakes is another room; it is handed in at the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

from starlette.responses import Response

from taskharbor.web.access import Permission
from taskharbor.web.pages.rendering import policy
from taskharbor.web.pages.routes import page_router
from taskharbor.web.pages.visits import Looking

router = page_router()
SPANS: Final = {"24h": "a day", "7d": "a week", "30d": "a month", "all": "everything"}


@runtime_checkable
class HistoryPages(Protocol):
    """Gives what the page of the lake shows. Called from many threads; starts no Spark."""

    def read(self, span: str) -> Mapping[str, Any]:
        """The report of the last `24h`, `7d`, `30d`, or of `all`, as `history.html` takes it; where there is none,
        `problem`, a sentence, and nothing else. `rules` are the positions of marks in its plots, as CSS."""
        ...

    def document(self, span: str) -> str | None:
        """The whole report as one file to keep; None where there is none."""
        ...


@router.get("/history")
async def history(visit: Looking) -> Response:
    # A lake holds every tenant's past.
    visit.principal.require(Permission.READ, every_tenant=True)
    source: HistoryPages | None = visit.request.app.state.history
    span = _span(visit)
    found: Mapping[str, Any] = {"problem": None} if source is None else await visit.run(source.read, span)
    has_lake = source is not None
    rules = found.get("rules")
    return visit.show("history.html", "/history", found=found, span=span, spans=SPANS, has_lake=has_lake, rules=rules)


@router.get("/history/report")
async def report(visit: Looking) -> Response:
    """The report as a file. Never shown from here: its styles stand inside it, which our pages do not allow."""
    visit.principal.require(Permission.READ, every_tenant=True)
    source: HistoryPages | None = visit.request.app.state.history
    text = None if source is None else await visit.run(source.document, _span(visit))
    if text is None:
        return visit.show(
            "history.html", "/history", 404, found={"problem": None}, span="7d", spans=SPANS, has_lake=False, rules=None
        )
    return Response(
        text.encode("utf-8", "backslashreplace"),
        headers={
            "content-disposition": 'attachment; filename="taskharbor-report.html"',
            "content-security-policy": policy("none"),
        },
        media_type="text/html; charset=utf-8",
    )


def _span(visit: Looking) -> str:
    asked = visit.request.query_params.get("span", "7d")
    return asked if asked in SPANS else "7d"

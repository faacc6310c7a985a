"""The lake for the dashboard: the numbers and plots of a report, made fit for pages that allow no inline styles.

The dashboard is another room and knows lakes by the protocol `HistoryPages` alone; the command line brings them
together. Starts no Spark.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import TaskHarborError

if TYPE_CHECKING:
    from markupsafe import Markup

    from taskharbor.pipeline.report_numbers import Report

log = logging.getLogger("taskharbor.pipeline")

SPANS: Final[Mapping[str, timedelta | None]] = {
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "all": None,
}
KEPT_S: Final = 30.0
"""How long an answer is good for: a run takes longer than that."""
_STYLE: Final = re.compile(r' style="((?:(?:left|bottom|width):\d+(?:\.\d+)?%;?)+)"')
_PLOTS: Final = ("throughput", "wait", "run", "capacity", "failures")
_ROWS: Final = ("ranges", "compute", "shares", "sparks", "tenants", "workers", "promises")


class LakeHistory:
    """What one lake knows. Reads it anew when half a minute has gone by."""

    def __init__(self, lake: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lake = lake
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Report]] = {}

    def read(self, span: str) -> Mapping[str, Any]:
        """What `history.html` of the dashboard takes."""
        try:
            found = self._report(span)
            if found.empty:
                return {"problem": found.empty}
            return {"problem": None, "report": found, **_plots(found)}
        except TaskHarborError as error:
            return {"problem": _sentence(str(error))}
        except ImportError as error:
            log.warning("the lake cannot be read here: %s", error)
            return {"problem": "Reading a lake needs an extra where the server runs: pip install 'taskharbor[spark]'."}

    def document(self, span: str) -> str | None:
        """The report as one page to keep."""
        from taskharbor.pipeline.report_html import page

        try:
            return page(self._report(span))
        except (TaskHarborError, ImportError):
            return None

    def _report(self, span: str) -> Report:
        from taskharbor.pipeline.reports import report

        with self._lock:
            known = self._known.get(span)
            if known is None or self._monotonic() - known[0] >= KEPT_S:
                known = self._monotonic(), report(self._lake, since=SPANS[span])
                self._known[span] = known
            return known[1]


def _plots(report: Report) -> dict[str, Any]:
    from taskharbor.pipeline.report_html import charts_of, heat_of

    rules = Rules()
    drawn = charts_of(report)
    plots = {name: rules.moved(drawn[name]) for name in _PLOTS}
    rows = {name: [rules.moved(each) for each in drawn[name]] for name in _ROWS}
    heat = [
        [(min(9, int(strength * 10)) if strength >= 0 else -1, tip) for strength, tip in row] for row in heat_of(report)
    ]
    return {"plots": plots, "rows": rows, "heat": heat, "rules": rules.text()}


class Rules:
    """Positions that stand in `style` attributes become rules of a style sheet, which a page can allow by its nonce."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def moved(self, drawn: Markup | None) -> Markup | None:
        """The drawing without styles. Only our own positions are: no text that came from a job looks like one, because
        in text the quotes are escaped."""
        if drawn is None:
            return None
        from markupsafe import Markup

        return Markup(_STYLE.sub(self._numbered, str(drawn)))  # noqa: S704  # as it was, but for numbers of ours

    def _numbered(self, found: re.Match[str]) -> str:
        number = self._numbers.setdefault(found[1], len(self._numbers))
        return f' data-at="{number}"'

    def text(self) -> Markup:
        from markupsafe import Markup

        rules = "".join(f'[data-at="{number}"]{{{style}}}' for style, number in self._numbers.items())
        return Markup(rules)  # noqa: S704  # numbers and three names of properties


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")

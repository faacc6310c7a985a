"""Brings the dashboard and the lake together: two rooms that do not know each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskharbor.web.settings import Settings


def history_of(settings: Settings) -> Any:
    """What the dashboard's history reads; None without a lake. Whether it is one is said on the page, where a run that
    comes later mends it."""
    if settings.lake is None:
        return None
    from taskharbor.pipeline.web_history import LakeHistory

    return LakeHistory(settings.lake)

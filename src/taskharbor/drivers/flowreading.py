"""What is asked of a store about whole workflows, beside what moves them on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from taskharbor.core.errors import InvalidCursor
from taskharbor.core.model import Status
from taskharbor.core.workflow import Step, StepCounts, StepResult, Workflow
from taskharbor.drivers.checks import check_cursor
from taskharbor.drivers.flowing import FlowDesk

_MADE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The form of an id that nobody gave."""


class FlowReader(Protocol):
    """What people ask about workflows. Reads, and the few changes to whole workflows."""

    def get(self, id: str) -> Workflow | None: ...

    def page(self, before: str | None, limit: int) -> Sequence[Workflow]:
        """In order of id, highest first, those with an id below `before`."""
        ...

    def steps(self, id: str, after: int | None, limit: int) -> Sequence[Step]:
        """In order of number, behind `after`."""
        ...

    def counts(self, id: str) -> Sequence[StepCounts]: ...

    def edges(self, id: str, limit: int) -> Sequence[tuple[int, int]]: ...

    def results(self, id: str, part: str | None, after: int | None, limit: int) -> Sequence[StepResult]: ...

    def unfinished(self, id: str, limit: int) -> Sequence[tuple[int, str]]:
        """Numbers and jobs of steps that are not ended."""
        ...

    def failed(self, id: str, after: int, limit: int) -> Sequence[tuple[int, str]]:
        """Numbers and jobs of steps that have failed, behind `after`."""
        ...

    def stranded(self, id: str, limit: int) -> Sequence[tuple[int, Status | None]]:
        """Numbers of steps that wait, or are held, though their jobs have ended; and how these did, None if unknown."""
        ...

    def lost(self, limit: int) -> Sequence[str]:
        """Jobs of open steps that have ended, and of failed ones that have been brought back."""
        ...

    def stuck(self, limit: int) -> Sequence[str]:
        """Running workflows with held steps, failed ones with open steps whose jobs are ready, and failed ones with a
        compensation that has not begun, or waits to be let go again."""
        ...

    def abandoned(self, before: datetime, limit: int) -> Sequence[str]:
        """Workflows that began to start before this moment and never did."""
        ...

    def cancelling(self, limit: int) -> Sequence[str]:
        """Workflows that are to be cancelled, and are not yet to the last step."""
        ...

    def forget_compensation(self, id: str) -> None: ...

    def over(self, before: datetime, limit: int) -> Sequence[str]:
        """Workflows that ended before. Not those that have failed as long as a dead job of theirs is there, by which
        they can go on."""
        ...

    def prune(self, ids: Sequence[str]) -> None:
        """Forget workflows, with their steps. Their jobs are pruned like any others."""
        ...


class Desk(FlowDesk, FlowReader, Protocol):
    """Both."""


def page_behind(desk: Desk, cursor: str | None, limit: int) -> Sequence[Workflow]:
    """A page, newest id first. A cursor that never was an id of a workflow is refused; one that has the form of an id
    may stand for a workflow that was pruned since, and the page behind it is the right one all the same."""
    check_cursor(cursor)
    if cursor is not None and not _MADE.fullmatch(cursor) and desk.get(cursor) is None:
        raise InvalidCursor(
            f"cursor {cursor!r} is no id of a workflow: give that of the last one that was listed, or start without one"
        )
    return desk.page(cursor, limit)

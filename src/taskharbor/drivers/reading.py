"""Questions about jobs and their history: the calls that all drivers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime

from taskharbor.core import limits as bounds
from taskharbor.core.answers import CensusRow, Counts, Glances, HistoryPage, Page
from taskharbor.core.errors import JobNotFound
from taskharbor.core.model import Attempt, Job, JobFilter
from taskharbor.drivers.checks import check_count, check_cursor, check_filter, list_position, sought, with_cursor
from taskharbor.drivers.operations import StoreOperations


class ReadingCalls(StoreOperations):
    """What the contract asks of a store without changing anything."""

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _moment(self, now: datetime | None) -> datetime: ...

    @abstractmethod
    def _absent(self, error: JobNotFound) -> JobNotFound: ...

    def get(self, id: str) -> Job:
        self._check_open()
        try:
            return self._get(sought(id, "id"))
        except JobNotFound as error:
            raise self._absent(error) from None

    def attempts(self, id: str) -> Sequence[Attempt]:
        self._check_open()
        return self._attempts(sought(id, "id"))

    def counts(self) -> Counts:
        return self._counts(self._moment(None))

    def census(self, now: datetime | None = None) -> Sequence[CensusRow]:
        return sorted(self._census(self._moment(now)), key=lambda row: row[:3])

    def count(self, filter: JobFilter | None = None, limit: int = 10_001) -> int:
        self._check_open()
        check_count(limit, "limit", bounds.MAX_COUNT)
        return self._count(check_filter(filter), limit)

    def history(self, cursor: str | None = None, limit: int = 1000) -> HistoryPage:
        self._check_open()
        check_count(limit, "limit", bounds.MAX_BATCH)
        check_cursor(cursor)
        return self._history(cursor, limit)

    def latest(self, after: str | None = None, limit: int = 1000) -> Glances:
        self._check_open()
        check_count(limit, "limit", bounds.MAX_BATCH)
        check_cursor(after)
        return self._latest(after, limit)

    # Last, because inside this class the name means the method from here on.

    def list(self, filter: JobFilter | None = None, cursor: str | None = None, limit: int = 100) -> Page:
        self._check_open()
        check_count(limit, "limit", bounds.MAX_BATCH)
        return with_cursor(self._list(check_filter(filter), list_position(cursor), limit))

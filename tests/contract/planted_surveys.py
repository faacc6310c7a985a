"""More planted bugs: in claims for one tenant, in questions about everything, and in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.contract.nesting import NestingDriver

from taskharbor.core.answers import CensusRow, Glances
from taskharbor.core.contract import Leased
from taskharbor.core.limits import MAX_BATCH
from taskharbor.core.model import JobFilter, Status
from taskharbor.core.tokens import Token


class TenantIgnored(NestingDriver):
    def _reserve(self, *args: Any) -> Leased:
        return super()._reserve(*args[:6])


class TenantPickedAfterTheClaim(NestingDriver):
    """Claims for anybody and keeps what fits: the rest is leased to nobody, and what stands behind it is not found."""

    def _reserve(self, *args: Any) -> Leased:
        return [leased for leased in super()._reserve(*args[:6]) if args[6] in (None, leased.job.tenant_id)]


class CensusWithoutFinishedJobs(NestingDriver):
    def _census(self, now: datetime) -> Sequence[CensusRow]:
        return [row for row in super()._census(now) if row.status in (Status.READY, Status.INFLIGHT, Status.DLQ)]


class CensusTakesScheduledJobsForDue(NestingDriver):
    def _census(self, now: datetime) -> Sequence[CensusRow]:
        with self._reading() as state:
            first = min((job.due_at for job in state.jobs.values()), default=None)
        return [
            row._replace(scheduled=0, oldest_due=first if row.status is Status.READY else None)
            for row in super()._census(now)
        ]


class CountBeyondItsLimit(NestingDriver):
    def _count(self, filter: JobFilter, limit: int) -> int:
        return super()._count(filter, MAX_BATCH)


class CountForgetsTheTenant(NestingDriver):
    def _count(self, filter: JobFilter, limit: int) -> int:
        return super()._count(replace(filter, tenant_id=None), limit)


class TextNotFoundInPayloads(NestingDriver):
    """Looks for the text wherever there is text, and not among bytes."""

    def _count(self, filter: JobFilter, limit: int) -> int:
        if filter.text is None:
            return super()._count(filter, limit)
        text = filter.text
        jobs = self._list(replace(filter, text=None), None, MAX_BATCH).jobs
        words = [(job.id, job.type, job.last_error, job.dlq_reason or "") for job in jobs]
        return min(sum(any(text in word for word in found) for found in words), limit)


class NewestFirst(NestingDriver):
    def _latest(self, after: str | None, limit: int) -> Glances:
        page = super()._latest(after, limit)
        return replace(page, rows=list(reversed(page.rows)))


class LatestCursorStaysBehind(NestingDriver):
    def _latest(self, after: str | None, limit: int) -> Glances:
        page = super()._latest(after, limit)
        return page if after is not None else replace(page, cursor=self._history(None, limit).cursor)


class LatestSkipsToTheEnd(NestingDriver):
    def _latest(self, after: str | None, limit: int) -> Glances:
        return replace(super()._latest(after, limit), cursor=super()._latest(None, 1).cursor)


class TokenReplaced(NestingDriver):
    def _add_token(self, token: Token) -> bool:
        with self._writing() as state:
            state.put("tokens", token.id, token)
        return True


class RevokedAgainAndAgain(NestingDriver):
    def _revoke_token(self, id: str, now: datetime) -> bool:
        with self._writing() as state:
            if id in state.tokens:
                state.put("tokens", id, replace(state.tokens[id], revoked_at=now))
            return id in state.tokens


class RevokedTokensForgotten(NestingDriver):
    def _revoke_token(self, id: str, now: datetime) -> bool:
        with self._writing() as state:
            known = super()._revoke_token(id, now)
            if known:
                state.drop("tokens", id)
            return known

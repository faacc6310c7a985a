"""The desk of the SQL stores: the same steps on each of them, in statements of the same names.

A dialect says how a statement is run. Sets of rows are given as one list of values for each column.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from taskharbor.core.contract import Leased
from taskharbor.core.fairness import HEAD_OF_LINE, TAGGED_BEFORE, Newcomer, tag_of, tag_time
from taskharbor.core.limiting import Limit, Standing
from taskharbor.core.limits import PRIORITY_RANGE
from taskharbor.core.model import Job, QueueSettings
from taskharbor.drivers.governing import Ask, Benched, Rules, Running, Woken
from taskharbor.drivers.sqlflows import SqlFlows
from taskharbor.drivers.tidying import Resting

Row = Sequence[Any]
Values = Mapping[str, Any]
Columns = Mapping[str, Sequence[Any]]

LAPSED_AT_ONCE: Final = 500


class Place(NamedTuple):
    """What a claim at the desk took from a job, to give it back if a limit stops it."""

    position: datetime
    progress: str | None
    updated_at: datetime


class SqlDesk(SqlFlows, ABC):
    """`governing.Desk` in SQL."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._is_held = False
        self._swept: set[str] = set()

    # --- What a dialect fills in -------------------------------------------------------------------------------

    @abstractmethod
    def _rows(self, statement: str, values: Values, columns: Columns | None = None) -> Sequence[Row]:
        """Run the statement and return its rows, with times as datetimes."""

    @abstractmethod
    def _run(self, statement: str, values: Values, columns: Columns | None = None) -> None:
        """Run a statement that returns nothing, now or with the next one that does."""

    @abstractmethod
    def _lock(self) -> None:
        """Keep other desks out until the end of the transaction."""

    @abstractmethod
    def _sweep(self, queues: Sequence[str], now: datetime) -> None:
        """Free the leases of these queues that have ended, and expire what is late, as any claim does."""

    def _sweep_once(self, queues: Sequence[str], now: datetime) -> None:
        if dirty := [queue for queue in queues if queue not in self._swept]:
            self._swept.update(dirty)
            self._sweep(dirty, now)

    @abstractmethod
    def claim(self, ask: Ask) -> Leased:
        """As `governing.Desk` says; `_places` gets what each job had before."""

    @abstractmethod
    def leased(self, now: datetime) -> Sequence[Job]: ...

    @abstractmethod
    def _choice(self, ask: Ask) -> Values:
        """The queues, types and tenant of an ask, as the statements that look for what it `wants` take them."""

    # --- Limits ------------------------------------------------------------------------------------------------

    def hold(self, limits: Sequence[Limit]) -> Sequence[Limit]:
        self._is_held = True
        if not limits:
            return []
        self._lock()
        asked = {limit.key for limit in limits}
        return [limit for limit in limits_from(self._rows("limits", {})) if limit.key in asked]

    def ended(self, ids: Sequence[str]) -> None:
        if self._may_strike(ids):
            self._run("desk_ended", {}, {"ids": ids})

    def _may_strike(self, ids: Sequence[str]) -> bool:
        """Whether to go on: whoever was not held back by anything need not wait for the lock of those who are."""
        if self._is_held:
            return True
        if not self._rows("desk_noted", {}, {"ids": ids}):
            return False
        self._is_held = True
        self._lock()
        return True

    def lapsed(self, now: datetime) -> None:
        self._run("desk_lapsed", {"now": now, "most": LAPSED_AT_ONCE})

    def doubt(self, ids: Sequence[str] | None = None) -> None:
        if ids is None:
            self._run("desk_doubt", {})
        else:
            self._run("desk_doubt+some", {}, {"ids": ids})

    def woken(self, ask: Ask, most: int) -> Sequence[Woken]:
        asked = {"now": ask.now, "most": most, "any": not ask.chooses}
        rows = self._rows("desk_woken", {**asked, **self._choice(ask)})
        return [Woken(bucket, (scope, name, per)) for bucket, scope, name, per in rows]

    def standings(self, buckets: Sequence[str]) -> Mapping[str, Standing]:
        found: dict[str, Standing] = {}
        for bucket, running, tokens, counted_at in self._rows("desk_standings", {}, {"buckets": buckets}):
            here = found.setdefault(bucket, Standing())
            here.running += running
            if tokens is not None:
                here.tokens, here.counted_at = tokens, counted_at
        return found

    def unbench(self, counts: Mapping[str, int], ask: Ask) -> Mapping[str, int]:
        back = dict.fromkeys(counts, 0)
        left = dict(counts)
        choice = self._choice(ask)
        while left:
            rows = self._rows("desk_unbench", choice, {"buckets": list(left), "counts": list(left.values())})
            struck = {bucket: (taken, came) for bucket, taken, came in rows}
            for bucket, (_, came) in struck.items():
                back[bucket] += came
            # Only where some of them were not ready any more is there more to bring back.
            left = {
                bucket: left[bucket] - came
                for bucket, (taken, came) in struck.items()
                if taken == left[bucket] and came < taken
            }
        return back

    def rest(self, until: Mapping[str, datetime]) -> None:
        buckets = sorted(until)
        self._run("desk_rest", {}, {"buckets": buckets, "untils": [until[bucket] for bucket in buckets]})
        self._run("desk_forget", {}, {"buckets": buckets})

    def bench(self, jobs: Sequence[Benched], limits: Mapping[str, Limit], wake: Mapping[str, datetime]) -> None:
        places = [self._places[each.leased.job.id] for each in jobs]
        undone: Columns = {
            "ids": [each.leased.job.id for each in jobs],
            "buckets": [each.bucket for each in jobs],
            "positions": [place.position for place in places],
            "progresses": [place.progress for place in places],
            "updates": [place.updated_at for place in places],
        }
        self._run("desk_undo", {}, undone)
        benched = [each for each in jobs if each.bucket]
        if not benched:
            return
        seated: Columns = {
            "ids": [each.leased.job.id for each in benched],
            "buckets": [each.bucket for each in benched],
            "priorities": [each.leased.job.priority for each in benched],
            "positions": [self._places[each.leased.job.id].position for each in benched],
        }
        self._run("desk_bench", {}, seated)
        buckets = sorted(wake)
        named = _keys(limits[bucket] for bucket in buckets)
        self._run("desk_wake", {}, {"buckets": buckets, **named, "wakes": [wake[bucket] for bucket in buckets]})

    def note(self, running: Sequence[Running]) -> None:
        if running:
            buckets, ids, tokens, untils = zip(*running, strict=True)
            self._run("desk_note", {}, {"buckets": buckets, "ids": ids, "tokens": tokens, "untils": untils})

    def spend(self, tokens: Mapping[str, tuple[Limit, float, datetime]]) -> None:
        buckets = sorted(tokens)
        named = _keys(tokens[bucket][0] for bucket in buckets)
        left = [float(tokens[bucket][1]) for bucket in buckets]
        counted = [tokens[bucket][2] for bucket in buckets]
        self._run("desk_spend", {}, {"buckets": buckets, **named, "tokens": left, "counted": counted})

    # --- Fair shares -------------------------------------------------------------------------------------------

    def newcomers(
        self, queue: str, now: datetime, most: int, ids: Sequence[str] | None
    ) -> Mapping[int, list[Newcomer]]:
        if ids is None:
            self._sweep_once([queue], now)  # what comes back by that is new in line, too
        asked = {"queue": queue, "now": now, "most": most}
        rows = (
            self._rows("desk_newcomers", asked) if ids is None else self._rows("desk_newcomers_of", asked, {"ids": ids})
        )
        found: dict[int, list[Newcomer]] = {}
        for priority, id, tenant_id in rows:
            found.setdefault(priority, []).append(Newcomer(id, tenant_id))
        return found

    def tags(self, queue: str, priority: int, tenants: Sequence[str]) -> tuple[Mapping[str, int], int]:
        line = {"queue": queue, "priority": priority}
        self._run("desk_open_line", line)
        highest = self._rows("desk_lock_line", line)[0][0]
        last = {row[0]: row[1] for row in self._rows("desk_tags", line, {"tenants": tenants})}
        first = self._rows("desk_head", line)
        return last, tag_of(first[0][0]) if first else highest

    def give(self, queue: str, priority: int, tags: Sequence[tuple[str, int]], last: Mapping[str, int]) -> None:
        if tags:
            times = [tag_time(tag) for _, tag in tags]
            self._run("desk_give", {}, {"ids": [id for id, _ in tags], "tags": times})
        known = {"": max(last.values()), **last}
        tenants = sorted(known)
        line = {"queue": queue, "priority": priority}
        self._run("desk_remember", line, {"tenants": tenants, "tags": [known[tenant] for tenant in tenants]})

    def highest_tag(self, ids: Sequence[str]) -> int | None:
        positions = [self._places[id].position for id in ids]
        highest = max((each for each in positions if each < TAGGED_BEFORE), default=None)
        return None if highest is None else tag_of(highest)

    def advance_line(self, queue: str, priority: int, tag: int) -> None:
        line = {"queue": queue, "priority": priority}
        self._run("desk_remember", line, {"tenants": [HEAD_OF_LINE], "tags": [tag]})

    def untag(self, queue: str, priority: int, most: int) -> int:
        ids = [row[0] for row in self._rows("desk_tagged", {"queue": queue, "priority": priority, "most": most})]
        if ids:
            self._run("desk_untag", {}, {"ids": ids})
        return len(ids)

    def untag_bench(self, queue: str) -> None:
        self._run("desk_untag_bench", {"queue": queue})

    # --- Tidying -----------------------------------------------------------------------------------------------

    def resting(self, after: str, most: int) -> Sequence[Resting]:
        rows = self._rows("tidy_buckets", {"after": after, "most": most})
        return [Resting(row[0], (row[1], row[2], row[3]), row[4], row[5]) for row in rows]

    def hurry(self, key: tuple[str, str, str], beyond: datetime, now: datetime) -> None:
        self._run("desk_hurry", {**key_values(key), "beyond": beyond, "now": now})

    def forget(self, buckets: Sequence[str]) -> None:
        self._run("tidy_forget", {}, {"buckets": buckets})

    def next_line(self, queue: str, after: int | None) -> int | None:
        lowest = PRIORITY_RANGE.start - 1 if after is None else after
        found: int | None = self._rows("tidy_line", {"queue": queue, "after": lowest})[0][0]
        return found

    def tenants(self, queue: str, priority: int, after: str, most: int) -> Sequence[tuple[str, int]]:
        line = {"queue": queue, "priority": priority, "after": after, "most": most}
        return [(row[0], row[1]) for row in self._rows("tidy_tenants", line)]

    def fade(self, queue: str, priority: int, tenants: Sequence[str]) -> None:
        self._run("tidy_fade", {"queue": queue, "priority": priority}, {"tenants": tenants})


def _keys(limits: Any) -> dict[str, list[str]]:
    keys = [limit.key for limit in limits]
    return {
        "scopes": [scope for scope, _, _ in keys],
        "names": [name for _, name, _ in keys],
        "pers": [per for _, _, per in keys],
    }


# --- Rules, as the tables hold them ------------------------------------------------------------------------------


def limits_from(rows: Sequence[Row]) -> list[Limit]:
    return [Limit(*row) for row in rows]


def limit_values(limit: Limit) -> dict[str, Any]:
    return {
        "scope": limit.scope,
        "name": limit.name,
        "per": limit.per,
        "concurrency": limit.concurrency,
        "rate": None if limit.rate is None else float(limit.rate),
        "burst": limit.burst,
    }


def key_values(key: tuple[str, str, str]) -> dict[str, str]:
    scope, name, per = key
    return {"scope": scope, "name": name, "per": per}


def settings_from(row: Row) -> QueueSettings:
    name, paused, fair, weights = row
    return QueueSettings(name, bool(paused), bool(fair), json.loads(weights) if weights else {})


def weights_text(weights: Mapping[str, float]) -> str | None:
    return json.dumps(dict(weights), ensure_ascii=False, sort_keys=True) if weights else None


def rules_from(limits: Sequence[Row], queues: Sequence[Row], benched: Sequence[Row], flowing: Sequence[Row]) -> Rules:
    settings = {found.name: found for found in map(settings_from, queues)}
    return Rules(tuple(limits_from(limits)), settings, bool(benched), bool(flowing))

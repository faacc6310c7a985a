"""Claims where one limit counts what runs of each key or tenant: a single statement, as long as nobody has to wait.

A desk asks for the standing of every bucket, judges, and notes what it leases, in a round trip each. Mostly all that a
claim meets has room, and then the server can do it by itself. Where it cannot, the desk has to be asked anyway, and the
short way was for nothing: so after each failure it is left out more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskharbor.core.contract import Leased
from taskharbor.core.limiting import LONGEST_BUCKET, Limit
from taskharbor.core.model import Settlement
from taskharbor.drivers.governing import Ask
from taskharbor.drivers.postgres.queueing import claim_params, leased_from_desk
from taskharbor.drivers.postgres.rows import text_array
from taskharbor.drivers.postgres.session import Call, Session
from taskharbor.drivers.sqldesk import LAPSED_AT_ONCE, key_values
from taskharbor.drivers.sqlfiles import with_lines

MOST_LEFT_OUT: Final = 32


class Counting:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._left_out = 0
        self._to_leave_out = 0

    def take(self, limit: Limit, ended: Sequence[Settlement], ask: Ask) -> Leased:
        """Nothing if a desk has to see to it."""
        if self._to_leave_out > 0:
            self._to_leave_out -= 1
            return []
        struck: list[Call] = [("desk_ended", {"ids": text_array([item.id for item in ended])})] if ended else []
        lapsed: Call = ("desk_lapsed", {"now": ask.now, "most": LAPSED_AT_ONCE})
        rule = {"concurrency": limit.concurrency, "stem": limit.stem, "longest": LONGEST_BUCKET}
        name = with_lines("desk_claim", ["counted"] if ask.tenant is None else ["counted", "tenant"])
        claim: Call = (name, {**claim_params(ask), **key_values(limit.key), **rule})
        claimed = self._session.run_all([("desk_lock", {}), *struck, lapsed, claim])[-1]
        self._left_out = 0 if claimed else min(2 * self._left_out + 1, MOST_LEFT_OUT)
        self._to_leave_out = self._left_out
        return leased_from_desk(claimed, ask)

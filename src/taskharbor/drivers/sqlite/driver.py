"""`SqliteDriver`: the parts put together."""

from __future__ import annotations

from taskharbor.core.carrying import Carrier
from taskharbor.drivers.sqlite.access import Access
from taskharbor.drivers.sqlite.carrying import SqliteCarrier
from taskharbor.drivers.sqlite.enqueueing import Enqueueing
from taskharbor.drivers.sqlite.fleet import Fleet
from taskharbor.drivers.sqlite.governing import Governing
from taskharbor.drivers.sqlite.inspecting import Inspecting
from taskharbor.drivers.sqlite.listening import Listening
from taskharbor.drivers.sqlite.scheduling import Scheduling
from taskharbor.drivers.sqlite.settling import Settling


class SqliteDriver(Enqueueing, Settling, Inspecting, Fleet, Governing, Scheduling, Access, Listening):
    """Jobs in one SQLite file, in WAL mode, durable at every commit.

    One process writes at a time and the others wait their turn; readers wait for nobody. The file must be on a
    local disk: the locks of network file systems cannot be trusted.
    """

    def carrier(self) -> Carrier:
        return SqliteCarrier(self)

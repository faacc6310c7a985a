"""A worker on a machine whose clock is wrong by CREW_CLOCK_OFFSET_S seconds."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time

OFFSET_S = float(os.environ["CREW_CLOCK_OFFSET_S"])
_time, _time_ns, _datetime = time.time, time.time_ns, dt.datetime


class AnyDatetime(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _datetime)


class WrongDatetime(_datetime, metaclass=AnyDatetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> _datetime:  # type: ignore[override]
        return _datetime.now(tz) + dt.timedelta(seconds=OFFSET_S)

    @classmethod
    def utcnow(cls) -> _datetime:  # type: ignore[override]
        return _datetime.utcnow() + dt.timedelta(seconds=OFFSET_S)


if __name__ == "__main__":
    time.time = lambda: _time() + OFFSET_S
    time.time_ns = lambda: _time_ns() + int(OFFSET_S * 1e9)
    dt.datetime = WrongDatetime  # type: ignore[misc]
    from taskharbor.cli import main

    sys.exit(main(sys.argv[1:]))

"""Job ids and lease tokens."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The first digit behind the third dash has two bits of noise."""


class _UUIDv7:
    """UUIDs of version 7 that never go backwards in one process.

    Jobs that are due at the same moment run in the order of their ids, so ids made in order must sort in
    order. A counter in the 12 bits behind the millisecond does that; when it is used up the millisecond is
    borrowed from the future.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_tick = 0

    def batch(self, count: int) -> list[str]:
        tick = (time.time_ns() // 1_000_000) << 12
        with self._lock:
            first = max(tick, self._last_tick + 1)
            self._last_tick = first + count - 1
        noise = os.urandom(8 * count).hex()
        ids: list[str] = []
        at = 0
        for tick in range(first, first + count):
            counter = tick & 0xFFF
            if not (ids and counter):  # the first of its millisecond
                head = f"{tick >> 12:012x}"
                head = f"{head[:8]}-{head[8:]}-7"
            variant = _VARIANTS[noise[at]]
            ids.append(f"{head}{counter:03x}-{variant}{noise[at + 1 : at + 4]}-{noise[at + 4 : at + 16]}")
            at += 16
        return ids


_generator = _UUIDv7()
os.register_at_fork(after_in_child=_generator.__init__)  # type: ignore[misc]


def new_ids(count: int) -> list[str]:
    """`count` UUIDv7 texts, each greater than all this process made before."""
    return _generator.batch(count)


def new_id() -> str:
    return _generator.batch(1)[0]


def new_tokens(count: int) -> list[str]:
    """`count` lease tokens of 128 random bits each, as 32 hexadecimal digits."""
    noise = os.urandom(16 * count).hex()
    return [noise[start : start + 32] for start in range(0, 32 * count, 32)]

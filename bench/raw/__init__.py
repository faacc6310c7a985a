"""What plain SQL reaches on the same server: the mark that our own cost is read from.

Each store has two. *Same facts* keeps what a driver must keep: a token for the lease, when it ends and an index to find
it by, deliveries and attempts, history that can be read in order and by job. It claims, commits, moves the jobs to
history and commits, a batch at a time; no fencing, no sweeps, no model. *Minimal* keeps no lease, and of history one
row by id: less than any queue that survives a crash of its worker, shown to see what those facts cost, with no goal.
"""

from __future__ import annotations

from typing import Protocol


class Raw(Protocol):
    def fill(self, count: int) -> int: ...

    def drain(self, batch: int) -> int: ...

    def close(self) -> None: ...

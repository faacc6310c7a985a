"""Other queues, each tuned as its own documents say, doing the same work in the same run.

Every one of them gets 100-byte payloads and handlers that do nothing, on the same server or disk with the same
durability, and is counted when the end of a job is committed. Their clocks start at the first job a handler gets, ours
at the word go: connecting, checking tables and the first fetch are never held against a peer.
"""

from __future__ import annotations

from typing import Protocol

from bench.peers.graphile_peer import GraphileWorker
from bench.peers.huey_peer import Huey
from bench.peers.pgqueuer_peer import PgQueuer

__all__ = ["GraphileWorker", "Huey", "Peer", "PgQueuer"]


class Peer(Protocol):
    name: str
    settings: str
    """How it was set up: printed below the table."""

    def missing(self) -> str | None:
        """Why it cannot run here, in a line; None when it can."""

    def prepare(self, address: str) -> None: ...

    def fill(self, address: str, count: int) -> float:
        """Jobs a second that it enqueues in bulk."""

    def drain(self, address: str, processes: int) -> float:
        """Jobs a second that it finishes, until the queue is empty."""

    def latency(self, address: str, samples: int) -> list[float]:
        """Milliseconds from commit to handler start, one by one on an idle queue."""

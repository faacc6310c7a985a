"""Enqueueing more jobs than fit into memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, overload

from taskharbor.core.contract import Driver
from taskharbor.core.model import Enqueued, NewJob

CHUNK_JOBS: Final = 5_000
CHUNK_BYTES: Final = 8 * 1_048_576
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class EnqueuedMany(Sequence[Enqueued]):
    """One `Enqueued` for each job, in order. Keeps 17 bytes of each, so that a million jobs take 17 MB."""

    def __init__(self) -> None:
        self._ids = bytearray()
        self._existed = bytearray()
        self._odd: dict[int, str] = {}
        """The ids that are not UUIDs, by position."""

    @property
    def existed(self) -> int:
        """How many were there already, under their key."""
        return sum(self._existed)

    @property
    def new(self) -> int:
        return len(self) - self.existed

    @property
    def ids(self) -> Iterator[str]:
        return (answer.id for answer in self)

    def extend(self, answers: Iterable[Enqueued]) -> None:
        for id, existed in answers:
            if _UUID.fullmatch(id):
                self._ids += bytes.fromhex(id.replace("-", ""))
            else:
                self._odd[len(self._existed)] = id
                self._ids += bytes(16)
            self._existed.append(existed)

    def __len__(self) -> int:
        return len(self._existed)

    @overload
    def __getitem__(self, index: int) -> Enqueued: ...
    @overload
    def __getitem__(self, index: slice) -> list[Enqueued]: ...
    def __getitem__(self, index: int | slice) -> Enqueued | list[Enqueued]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        id = self._odd.get(position)
        if id is None:
            text = self._ids[16 * position : 16 * position + 16].hex()
            id = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        return Enqueued(id, bool(self._existed[position]))

    def __repr__(self) -> str:
        return f"EnqueuedMany({self.new:,} new, {self.existed:,} existed)"


def enqueue_chunks(driver: Driver, jobs: Iterable[NewJob], connection: Any) -> EnqueuedMany:
    """Enqueue chunk by chunk; a chunk ends at some thousand jobs, or sooner when their payloads are large."""
    answers = EnqueuedMany()
    for chunk in chunks(jobs):
        answers.extend(driver.enqueue(chunk, connection=connection))
    return answers


def chunks(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    chunk: list[NewJob] = []
    size = 0
    for job in jobs:
        chunk.append(job)
        size += len(job.payload)
        if len(chunk) >= CHUNK_JOBS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk

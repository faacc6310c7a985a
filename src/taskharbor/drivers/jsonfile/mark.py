"""How far the journal reaches, noted in the lock file behind every operation that is on disk.

A journal that lost whole lines at its end looks like a shorter one. The mark tells them apart: it is written after
the journal is safe, so it may be behind, but never ahead. It is not forced to disk and may be torn or missing; then
it says nothing.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from typing import Final, NamedTuple

OFFSET: Final = 256
"""Where the mark begins; the note of the last writer is before it."""
_LENGTH: Final = 256
_ITEMS: Final = 4


class Mark(NamedTuple):
    """The store, and the generation and length of its journal."""

    store_id: str
    generation: int
    size: int


def read(descriptor: int) -> Mark | None:
    """The mark in the lock file; None if there is none that can be trusted."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(raw(descriptor))
        if isinstance(found, list) and len(found) == _ITEMS and found[-1] == _checksum(found[:-1]):
            return Mark(*found[:-1])
    return None


def raw(descriptor: int) -> bytes:
    """The bytes of the mark, whatever they say: others than before mean that something was written."""
    return os.pread(descriptor, _LENGTH, OFFSET)


def write(descriptor: int, mark: Mark) -> None:
    """Replace the mark. Needs the lock for itself alone. Failing here fails nobody: the operation is safe already."""
    line = json.dumps([*mark, _checksum(list(mark))]).encode()
    with suppress(OSError):
        os.pwrite(descriptor, line.ljust(_LENGTH - 1) + b"\n", OFFSET)


def _checksum(values: list[object]) -> int:
    return zlib.crc32(json.dumps(values).encode())

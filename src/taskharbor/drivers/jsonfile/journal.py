"""`journal-<generation>.jsonl`: one line for every operation since the snapshot of that generation.

A line is `["<crc32>", [changes]]`, and each checksum continues the one before it, so that a line that is
missing, doubled or out of place is noticed as surely as a damaged one. A crashed writer can leave one unfinished line:
the last, without its newline. It never counted, and the next writer cuts it off. Anything else is damage, and so is a
journal that is shorter than its mark says (see `mark`).
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from taskharbor.core.errors import StoreCorrupt
from taskharbor.drivers.jsonfile import records
from taskharbor.drivers.jsonfile.failures import unreadable
from taskharbor.drivers.jsonfile.mark import Mark
from taskharbor.drivers.jsonfile.snapshot import write_all, write_durably
from taskharbor.drivers.state import State

Change = tuple[str, Any, Any]
"""Table, key, and the record that is there now (None: the row went)."""

_NAME: Final = re.compile(r"journal-([0-9]+)\.jsonl")
_HEAD: Final = len('["00000000",')
_UNFINISHED: Final = re.compile(rb"[ -~]*")
"""What our lines are written in. A disk that lost something puts other bytes in its place, mostly NUL."""


def file_name(generation: int) -> str:
    return f"journal-{generation}.jsonl"


def generations(directory: Path) -> dict[int, Path]:
    """Every journal in the directory, of this generation and of others that a crash left behind."""
    found = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return {int(match[1]): directory / match[0] for match in found if match}


def create(directory: Path, store_id: str, generation: int) -> None:
    """A journal without operations. Written before the snapshot that needs it."""
    line, _ = _line({"store_id": store_id, "generation": generation}, 0)
    write_durably(directory / file_name(generation), line)


class Journal:
    """The journal of one generation, and how far this process has read it. Used under the store's lock only."""

    def __init__(self, directory: Path, state: State, generation: int) -> None:
        self._path = directory / file_name(generation)
        self._state = state
        self._generation = generation
        self._header = {"store_id": state.store_id, "generation": generation}
        self.size = 0
        """Where the last whole line ends, as far as this process knows."""
        self._checksum = 0
        self._refusal: OSError | None = None
        self._descriptor = self._open()

    def _open(self) -> int:
        for mode in (os.O_RDWR, os.O_RDONLY):
            try:
                return os.open(self._path, mode | os.O_CLOEXEC)
            except FileNotFoundError:
                raise StoreCorrupt(
                    f"{self._path} is missing, and the latest operations with it: restore the directory from a backup"
                ) from None
            except OSError as error:
                # A store that may only be read is still good for reading; a write fails when it is tried.
                if mode == os.O_RDONLY:
                    raise unreadable(error, self._path.parent) from error
                self._refusal = error
        raise AssertionError("unreachable")

    def close(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    @property
    def mark(self) -> Mark:
        """To be written down where the next one to open the journal finds it."""
        return Mark(self._state.store_id, self._generation, self.size)

    def catch_up(self, mark: Mark | None, *, mend: bool) -> None:
        """Apply what others have appended. With `mend`, cut off what a crashed writer left unfinished."""
        length = os.fstat(self._descriptor).st_size
        if length < self.size:
            raise StoreCorrupt(f"{self._path} became shorter while it was in use: restore the directory from a backup")
        if length > self.size or length == 0:
            self._read(length)
        # Before anything is cut off: what looks unfinished may be the rest of an operation that was complete.
        self._check_mark(mark)
        if mend and self.size < length:
            self._check_writable()
            os.ftruncate(self._descriptor, self.size)
            os.fsync(self._descriptor)

    def _read(self, length: int) -> None:
        data = _read_all(self._descriptor, self.size, length)
        start = 0
        while end := data.find(b"\n", start) + 1:
            content = self._checked(data[start:end])
            if content is None:
                raise self._damage()
            self._apply(content)
            self.size += end - start
            start = end
        if self.size == 0:
            raise StoreCorrupt(f"{self._path} has no beginning: restore the directory from a backup")
        if not _UNFINISHED.fullmatch(data, start):
            raise self._damage()

    def _damage(self) -> StoreCorrupt:
        return StoreCorrupt(
            f"{self._path} is damaged at byte {self.size} (checksum), and not as by a writer that was interrupted: "
            "restore the directory from a backup"
        )

    def _check_mark(self, mark: Mark | None) -> None:
        if mark is None or mark.store_id != self._state.store_id:
            return
        if (mark.generation, mark.size) > (self._generation, self.size):
            raise StoreCorrupt(
                f"{self._path} ends at byte {self.size}, but journal-{mark.generation}.jsonl had operations up to byte "
                f"{mark.size}: restore the directory from a backup (if this is an older backup, put back on "
                "purpose, remove the file `lock` beside it)"
            )

    def _check_writable(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _checked(self, line: bytes) -> bytes | None:
        """What the line says; None if it is not a whole line that follows the one before."""
        content = line[_HEAD:-2]
        checksum = zlib.crc32(content, self._checksum)
        if line != _framed(content, checksum):
            return None
        self._checksum = checksum
        return content

    def _apply(self, content: bytes) -> None:
        try:
            said = json.loads(content)
            if self.size == 0:
                if said != self._header:
                    raise StoreCorrupt(f"{self._path} belongs to another store: restore the directory from a backup")
                return
            for table, raw_key, record in said:
                key = records.decode_key(table, raw_key)
                if record is None:
                    self._state.drop(table, key)
                else:
                    self._state.put(table, key, records.decode(table, key, record, self._state))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StoreCorrupt(
                f"{self._path} has an operation at byte {self.size} that cannot be understood ({error!r}): "
                "restore the directory from a backup"
            ) from error

    def append(self, changes: Sequence[Change]) -> None:
        """One operation, on disk before this returns. If it fails, the file is as it was before."""
        self._check_writable()
        line, checksum = _line(changes, self._checksum)
        try:
            write_all(self._descriptor, line, self.size)
            os.fsync(self._descriptor)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
                os.fsync(self._descriptor)
            raise
        self.size += len(line)
        self._checksum = checksum


def _line(content: Any, previous: int) -> tuple[bytes, int]:
    text = json.dumps(content, separators=(",", ":")).encode()
    checksum = zlib.crc32(text, previous)
    return _framed(text, checksum), checksum


def _framed(content: bytes, checksum: int) -> bytes:
    return b'["%08x",%b]\n' % (checksum, content)


def _read_all(descriptor: int, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)

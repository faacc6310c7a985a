"""One lock per store, between processes. The kernel lets go of it when its holder dies, however it dies."""

from __future__ import annotations

import errno
import os
import random
import socket
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

from taskharbor.core.errors import StoreRefused, StoreUnavailable
from taskharbor.drivers.jsonfile.failures import store_error
from taskharbor.drivers.jsonfile.mark import OFFSET
from taskharbor.drivers.jsonfile.snapshot import missing

try:
    import fcntl
except ImportError:  # pragma: no cover - only off POSIX
    fcntl = None  # type: ignore[assignment]

FILE_NAME: Final = "lock"
_LONGEST_PAUSE_S: Final = 0.005


class StoreLock:
    """The store's lock, for one turn at the store. What is open hangs on this, so that it can always be let go of:
    a bare descriptor that an interrupt takes from its function is one that nobody closes."""

    def __init__(self) -> None:
        self._file: FileIO | None = None
        self._process = os.getpid()

    @property
    def descriptor(self) -> int:
        assert self._file is not None
        return self._file.fileno()

    def take(self, directory: Path, *, exclusive: bool, create: bool, wait_s: float) -> None:
        """Alone or together with other readers. StoreUnavailable after `wait_s`. Whether or not it raises, `release`.

        With `create`, the file to lock is made where it is missing; else a missing one means there is no store.
        """
        if fcntl is None:  # pragma: no cover - only off POSIX
            raise StoreRefused("json:// needs the file locks of Linux, macOS or BSD: use sqlite:// here")
        deadline = time.monotonic() + wait_s
        path, kind = directory / FILE_NAME, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        while True:
            self._file = file = _open(path, exclusive, create)
            while not _try(file.fileno(), kind):
                if time.monotonic() >= deadline:
                    raise StoreUnavailable(
                        f"waited {wait_s:g} s for the JSON store {directory}, which {_holder(file.fileno())} is using: "
                        "try again, or use sqlite:// when several processes are busy with one store"
                    )
                time.sleep(random.uniform(0.0005, _LONGEST_PAUSE_S))
            if _is_still(path, file.fileno()):
                if exclusive:
                    _sign(file.fileno())
                return
            # Somebody removed the file while we waited for it; the lock that counts is the one that can be found.
            self.release()

    def release(self) -> None:
        """As often as it is called."""
        file = self._file
        if file is None or file.closed:
            return
        if self._process == os.getpid():
            # By hand, not by closing: a child forked meanwhile may hold a copy of the descriptor.
            with suppress(ValueError):  # another thread has just closed it: what an interrupt left may go in any
                fcntl.flock(file.fileno(), fcntl.LOCK_UN)
        file.close()


def _open(path: Path, exclusive: bool, create: bool) -> FileIO:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | (os.O_CREAT if create else 0), 0o666)

    try:
        return FileIO(path, "r+", opener=opener)
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path.parent) from None
    except OSError as error:
        if not exclusive and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            # Reading needs no write access, as long as there is a file to lock.
            with suppress(OSError):
                return FileIO(path, "r")
        raise store_error(error, path.parent) from error


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    """Leave a note for those who wait in vain. It is no part of the lock."""
    with suppress(OSError):
        note = f"process {os.getpid()} on {socket.gethostname()}".encode()[: OFFSET - 1].ljust(OFFSET - 1) + b"\n"
        if os.pread(descriptor, OFFSET, 0) != note:
            os.pwrite(descriptor, note, 0)


def _holder(descriptor: int) -> str:
    try:
        note = os.pread(descriptor, OFFSET, 0).decode("utf-8", "replace").strip()
    except OSError:
        note = ""
    return f"another process (the last writer was {note})" if note else "another process"

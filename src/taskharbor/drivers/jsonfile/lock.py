"""One lock per store, between processes. The kernel lets go of it when its holder dies, however it dies."""

from __future__ import annotations

import errno
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def held(directory: Path, *, exclusive: bool, create: bool, wait_s: float) -> Iterator[int]:
    """Hold the store's lock, alone or together with other readers, and give its descriptor. StoreUnavailable after
    `wait_s`.

    With `create`, the file to lock is made where it is missing; else a missing one means there is no store.
    """
    if fcntl is None:  # pragma: no cover - only off POSIX
        raise StoreRefused("json:// needs the file locks of Linux, macOS or BSD: use sqlite:// here")
    deadline = time.monotonic() + wait_s
    descriptor = _take(directory / FILE_NAME, exclusive, create, deadline, wait_s)
    try:
        yield descriptor
    finally:
        # Unlocked by hand, not by closing: a child forked meanwhile may hold a copy of the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _take(path: Path, exclusive: bool, create: bool, deadline: float, wait_s: float) -> int:
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    while True:
        descriptor = _open(path, exclusive, create)
        try:
            while not _try(descriptor, kind):
                if time.monotonic() >= deadline:
                    raise StoreUnavailable(
                        f"waited {wait_s:g} s for the JSON store {path.parent}, which {_holder(descriptor)} is using: "
                        "try again, or use sqlite:// when several processes are busy with one store"
                    )
                time.sleep(random.uniform(0.0005, _LONGEST_PAUSE_S))
            if _is_still(path, descriptor):
                if exclusive:
                    _sign(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # Somebody removed the file while we waited for it; the lock that counts is the one that can be found.
        os.close(descriptor)


def _open(path: Path, exclusive: bool, create: bool) -> int:
    try:
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0) | os.O_CLOEXEC, 0o666)
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path.parent) from None
    except OSError as error:
        if not exclusive and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            # Reading needs no write access, as long as there is a file to lock.
            with suppress(OSError):
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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

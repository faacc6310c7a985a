"""Being told by the kernel that a file was written to, instead of looking again and again. Linux only.

A look every few milliseconds costs more than one per cent of a core; this costs nothing while nothing happens.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Final

_IN_MODIFY: Final = 0x2
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_ONLYDIR: Final = 0x1000000
_HEAD: Final = struct.Struct("iIII")
_ENOUGH: Final = 65_536
_IGNORED: Final = 0x8000  # the directory is gone
_OVERFLOW: Final = 0x4000


class DirectoryWatch:
    """What is written to files of a directory whose names begin with `prefix`. OSError where this cannot be had."""

    def __init__(self, directory: Path, prefix: str) -> None:
        self.descriptor = -1
        if not sys.platform.startswith("linux"):
            raise OSError("only Linux has inotify")
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self._prefix = os.fsencode(prefix)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "no inotify")
        mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_ONLYDIR
        if libc.inotify_add_watch(self.descriptor, os.fsencode(directory), mask) < 0:
            error = ctypes.get_errno()
            self.close()
            raise OSError(error, "cannot watch", str(directory))

    def events(self) -> bool:
        """Whether any of the files was written to since this was asked last. OSError once the directory is gone."""
        found = False
        while True:
            try:
                data = os.read(self.descriptor, _ENOUGH)
            except BlockingIOError:
                return found
            offset = 0
            while offset < len(data):
                _, mask, _, length = _HEAD.unpack_from(data, offset)
                offset += _HEAD.size
                name = data[offset : offset + length].rstrip(b"\0")
                offset += length
                if mask & _IGNORED:
                    raise OSError("the watched directory is gone")
                found = found or bool(mask & _OVERFLOW) or name.startswith(self._prefix)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

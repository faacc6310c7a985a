"""Hearing of what other processes do to a JSON store."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from taskharbor.drivers.jsonfile import lock, mark
from taskharbor.drivers.listening import SteppingListener

STEP_S: Final = 0.008


class JsonListener(SteppingListener):
    """Watches the mark, which every operation that changed something writes last. It does not tell queues apart."""

    step_s = STEP_S

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._path = directory / lock.FILE_NAME
        self._descriptor = -1
        self._seen = self._read()

    def _wait(self, timeout_s: float) -> bool:
        # Opened for each wait anew: the file that counts is the one that can be found.
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1
        try:
            return super()._wait(timeout_s)
        finally:
            if self._descriptor >= 0:
                os.close(self._descriptor)

    def _has_changed(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            found = mark.raw(self._descriptor)
        except OSError:
            return False
        changed = found != self._seen
        self._seen = found
        return changed

    def _read(self) -> bytes:
        with suppress(OSError), self._path.open("rb", buffering=0) as file:
            return mark.raw(file.fileno())
        return b""

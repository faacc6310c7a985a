"""Hearing of what other processes do to a JSON store."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from taskharbor.drivers.jsonfile import lock, mark
from taskharbor.drivers.listening import FileListener


class JsonListener(FileListener):
    """Watches the mark, which every operation that changed something writes last. It does not tell queues apart."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, lock.FILE_NAME)
        self._path = directory / lock.FILE_NAME
        self._seen = b""
        self._has_changed()

    def _has_changed(self) -> bool:
        # Opened for each look anew: the file that counts is the one that can be found.
        with suppress(OSError), self._path.open("rb", buffering=0) as file:
            found = mark.raw(file.fileno())
            changed = found != self._seen
            self._seen = found
            return changed
        return False

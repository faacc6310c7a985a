"""How many jobs a worker may still take, when it was told to end after so many."""

from __future__ import annotations

import threading

from taskharbor.core.limits import MAX_BATCH


class Allowance:
    """Shared by the claimers of a worker, which ask at the same time: together they never take more."""

    def __init__(self, jobs: int | None) -> None:
        self._jobs = jobs
        self._asked = 0
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        return MAX_BATCH if self._jobs is None else max(0, self._jobs - self._taken - self._asked)

    @property
    def used_up(self) -> bool:
        return self._jobs is not None and self._taken >= self._jobs

    def ask(self, most: int) -> int:
        """How many of so many may be asked for. What comes of it is told with `took`."""
        if self._jobs is None:
            return most
        with self._lock:
            granted = min(most, self.left)
            self._asked += granted
            return granted

    def took(self, asked: int, taken: int) -> None:
        if self._jobs is not None:
            with self._lock:
                self._asked -= asked
                self._taken += taken

    def give_back(self, jobs: int) -> None:
        """Jobs that were taken and went back unbegun."""
        if self._jobs is not None:
            with self._lock:
                self._taken -= jobs

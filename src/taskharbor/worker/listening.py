"""Wakes the claimers when the store hints that something has come in. They look by themselves too."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from taskharbor.core.errors import TaskHarborError
from taskharbor.worker.claimer import Claimer
from taskharbor.worker.crew import Crew
from taskharbor.worker.patience import Patience

if TYPE_CHECKING:
    from taskharbor.core.contract import Listener

TRY_AGAIN_S: Final = 5.0

log = logging.getLogger("taskharbor.worker")


class Listening:
    def __init__(self, crew: Crew, queues: Sequence[str], claimers: Sequence[Claimer]) -> None:
        self._crew = crew
        self._queues = queues
        self._claimers = claimers
        self._stop = threading.Event()
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="taskharbor-listen", daemon=True)
        self._thread.start()

    def stop(self, patience: Patience) -> None:
        self._stop.set()
        if self._listener is not None:
            self._listener.wake()
        if self._thread is not None:
            patience.join(self._thread)

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen()
            except TaskHarborError as error:
                log.debug("no hints from the store for now: %s", error)
                self._stop.wait(TRY_AGAIN_S)

    def _listen(self) -> None:
        self._listener = listener = self._crew.driver.listen(self._queues)
        try:
            # It tells nothing of what came in before it was there, and after the last look.
            self._hint_all()
            if len(self._claimers) == 1:
                # The one claimer listens for itself, as long as it has nothing better to do.
                self._claimers[0].attend(listener)
                self._stop.wait()
                return
            while not self._stop.is_set():
                if listener.wait(TRY_AGAIN_S):
                    self._hint_all()
        finally:
            if len(self._claimers) == 1:
                self._claimers[0].attend(None)
            listener.close()

    def _hint_all(self) -> None:
        for claimer in self._claimers:
            claimer.hint()

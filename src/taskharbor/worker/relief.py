"""Helps a claimer out when there is more to settle and to fetch than one can keep up with."""

from __future__ import annotations

from collections.abc import Sequence

from taskharbor.worker.batching import BatchRun
from taskharbor.worker.claimer import SLOWEST_STEP_S, Claimer
from taskharbor.worker.held import Held
from taskharbor.worker.patience import Patience


class Relief(Claimer):
    """A second claimer for a busy lane on a store that takes several writers at once: while the first one waits for
    the store, or reads what came back, this one is on its way with the next batch."""

    def _step(self) -> None:
        lane = self._lane
        half = lane.batch // 2
        lane.rush.clear()
        if self._closing or len(lane.done) < half or self._room() < half:
            if not self._ended.is_set():
                lane.rush.wait(SLOWEST_STEP_S)
            return
        self._telling = lane.finished(lane.batch)
        self._talk(self._room())

    def end(self, patience: Patience) -> None:
        self._ended.set()
        self._lane.rush.set()  # it may be waiting for that
        super().end(patience)

    def _finished(self) -> bool:
        return self._ended.is_set()

    def _keeps(self, run: Sequence[Held | BatchRun]) -> bool:
        return False

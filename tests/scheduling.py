"""Which process of a test run does which tests, where there are several.

A Spark takes long to start and longer to get quick, so not every process has one: the latter half of them does all
else meanwhile, what takes long first (see `in_order`), so that nobody is left alone with it in the end. Behind the
tests of Spark the others begin at the other end, with the thousands that are over in a moment: those keep the
processors busy while the rest waits for threads and processes. Tests of one module stay together, for they may share
what is slow to make.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby

import pytest
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

SPARK = "tests/pipeline/"
SHORT = tuple(f"tests/contract/test_{store}" for store in ("memory", "json", "sqlite", "postgres", "mysql"))
TOGETHER = 25
"""The most tests that a process gets at once; of a larger module others get the next ones."""
AHEAD = 3
"""What a process has before it: the test that runs, the next one, and another, so that it never waits for more."""


def in_order(item: pytest.Item) -> tuple[bool, ...]:
    """Where a process starts a Spark of its own, it comes later: that is quicker behind what `quick_java` does."""
    name, starts = item.nodeid, item.get_closest_marker("process") is not None
    if name.startswith(SPARK):
        return False, starts
    return True, name.startswith(SHORT), not starts, item.get_closest_marker("spark") is not None


class FewSparks(LoadScheduling):
    def schedule(self) -> None:
        if self.collection is None and self._check_nodes_have_same_collection():
            self.collection = next(iter(self.node2collection.values()))
            self.pending[:] = range(len(self.collection))
        for node in self.nodes if self.collection is not None else ():
            self.check_schedule(node)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        if node.shutting_down:
            return
        while self.pending and len(self.node2pending[node]) < AHEAD:
            chunk = self._take(node)
            self.node2pending[node].extend(chunk)
            node.send_runtest_some(chunk)
        if not self.pending:
            node.shutdown()  # does what it has been given first

    def _take(self, node: WorkerController) -> list[int]:
        """The next tests of a process out of `pending`, all of one module, in their order."""
        self.pending.sort()  # what a process that died had before it is behind the others
        spark = bisect_left(self.pending, True, key=lambda index: not self._module(index).startswith(SPARK))
        has_spark = self.nodes.index(node) < (self.numnodes + 1) // 2
        if has_spark and not spark:
            chunk = self._together(self.pending[-TOGETHER:][::-1])[::-1]
            del self.pending[-len(chunk) :]
            return chunk
        start = 0 if has_spark or spark == len(self.pending) else spark
        chunk = self._together(self.pending[start : start + TOGETHER])
        del self.pending[start : start + len(chunk)]
        return chunk

    def _together(self, indices: list[int]) -> list[int]:
        return list(next(groupby(indices, self._module))[1])

    def _module(self, index: int) -> str:
        assert self.collection is not None
        return self.collection[index].partition("::")[0]

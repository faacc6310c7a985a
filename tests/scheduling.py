"""Which process of a test run does which tests, where there are several.

A Spark takes long to start and longer to get quick, so not every process has one: the last third of them does all
else meanwhile. What takes long comes first (see `in_order`), so that no process is left alone with it in the end, and
the thousands of tests that are over in a moment and never wait come last. Tests of one module stay together, for they
may share what is slow to make.
"""

from __future__ import annotations

from itertools import groupby, islice

import pytest
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

SPARK = "tests/pipeline/"
SHORT = "tests/contract/"
TOGETHER = 25
"""The most tests that a process gets at once; of a larger module others get the next ones."""
AHEAD = 3
"""What a process has before it: the test that runs, the next one, and another, so that it never waits for more."""


def in_order(item: pytest.Item) -> tuple[bool, ...]:
    name = item.nodeid
    return not name.startswith(SPARK), item.get_closest_marker("process") is None, name.startswith(SHORT)


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
            start = self._first_for(node)
            _, module = next(groupby(islice(self.pending, start, start + TOGETHER), self._module))
            chunk = list(module)
            del self.pending[start : start + len(chunk)]
            self.node2pending[node].extend(chunk)
            node.send_runtest_some(chunk)
        if not self.pending:
            node.shutdown()  # does what it has been given first

    def _first_for(self, node: WorkerController) -> int:
        """Where in `pending` the next test of a process is: those without a Spark have others first."""
        if self.nodes.index(node) < self.numnodes - self.numnodes // 3:
            return 0
        return next((at for at, index in enumerate(self.pending) if not self._module(index).startswith(SPARK)), 0)

    def _module(self, index: int) -> str:
        assert self.collection is not None
        return self.collection[index].partition("::")[0]

"""What a worker does when a store call neither ends nor fails, and when a handler never ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from tests.worker.conftest import Start

from taskharbor import Context, Harbor
from taskharbor.core.model import Extension

LONG_S = 20.0


def test_a_handler_is_told_when_its_lease_runs_out_though_the_store_does_not_answer(
    harbor: Harbor, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, told = threading.Event(), threading.Event()
    extend = harbor.driver.extend

    def hang(extensions: Sequence[Extension], **words: Any) -> Any:
        answers.wait(LONG_S)
        return extend(extensions, **words)

    monkeypatch.setattr(harbor.driver, "extend", hang)

    @harbor.task
    def patient(context: Context) -> None:
        while not context.cancelled and not answers.wait(0.01):
            pass
        if not answers.is_set():
            told.set()

    patient.enqueue()
    worker = start(lease_s=1)
    try:
        assert told.wait(LONG_S / 2)
    finally:
        answers.set()
    assert worker.tally.lost == 1


@pytest.mark.usefixtures("unheeded")
@pytest.mark.parametrize("slots", [1, 3])
def test_a_drain_ends_though_a_handler_was_left_behind(harbor: Harbor, slots: int) -> None:
    over = threading.Event()

    @harbor.task(timeout=0.05, max_attempts=1)
    def endless() -> None:
        over.wait(LONG_S)

    endless.enqueue()
    try:
        tally = harbor.worker(fleet=False, concurrency=slots, lease_s=1).drain()
        assert not over.is_set()
    finally:
        over.set()
    assert tally.dead == 1

"""Handlers in processes of their own open what they run, with the keys of the application that they import."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from tests.worker import encrypted_app as app

from taskharbor import Keyring
from taskharbor.core.envelope import is_sealed
from taskharbor.drivers import open_driver

pytestmark = pytest.mark.process


def test_a_handler_in_a_process_of_its_own_opens_its_payload_and_seals_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = open_driver(f"sqlite:///{tmp_path}/jobs.db")
    driver.migrate()
    with app.harbor._store.exchanged(driver):
        job = app.whisper.enqueue(text="psst")
        with monkeypatch.context() as patch:
            patch.setattr(app.harbor, "encryption", Keyring({"2027-01": os.urandom(32)}))
            foreign = app.whisper.using(max_attempts=1).enqueue(text="psst")
        with caplog.at_level(logging.ERROR, "taskharbor"):
            tally = app.harbor.worker(fleet=False, concurrency=1).drain()
        assert (tally.done, tally.snoozed) == (1, 1)
        text, pid, payload = app.harbor.wait(job)
        assert (text, payload) == ("psst", '{"text":"psst"}')
        assert pid != os.getpid()
        assert is_sealed(driver.get(job.id).result)
        assert app.harbor.job(foreign).failures == 0
        assert "'2027-01'" in caplog.text
    driver.close()

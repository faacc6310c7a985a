"""The suite in other people's projects: with their pytest configuration, and on drivers that are broken."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taskharbor.core.answers import HistoryPage
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.testing import helpers

MINE = """
import pytest
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.testing import DriverContract

class TestMine(DriverContract):
    @pytest.fixture
    def driver(self):
        driver = MemoryDriver()
        yield driver
        driver.close()
"""
WITHOUT_HYPOTHESIS = """
import sys
sys.modules["hypothesis"] = None
from taskharbor import MissingExtra
try:
    import taskharbor.testing.statemachine
except MissingExtra as error:
    assert "pip install" in str(error), error
else:
    raise SystemExit("the state machine was imported without Hypothesis")
"""


@pytest.mark.process
def test_the_suite_asks_nothing_of_the_pytest_configuration_around_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(MINE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "--strict-markers", "-W", "error"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-k", "lease or election", "test_mine.py"],
        cwd=tmp_path,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
def test_without_hypothesis_the_state_machine_says_what_to_install() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_HYPOTHESIS], check=True)


def test_a_feed_that_never_comes_is_waited_for_once_and_not_in_every_test(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(MemoryDriver):
        def _history(self, cursor: str | None, limit: int) -> HistoryPage:
            return HistoryPage((), super()._history(cursor, 1).cursor)

    monkeypatch.setattr(helpers, "FEED_PATIENCE_S", 0.5)
    monkeypatch.setattr(helpers, "FEED_PATIENCE_LOST_S", 0.02)
    took = []
    for _ in range(2):
        began = time.monotonic()
        with Silent() as driver, pytest.raises(AssertionError, match="expected 1 rows of history"):
            helpers.facts(driver, 1)
        took.append(time.monotonic() - began)
    assert took[0] >= 0.5 > took[1]

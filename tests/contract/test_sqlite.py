"""The conformance suite on the SQLite driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver
from taskharbor.testing import DriverContract


class TestSqlite(DriverContract):
    @pytest.fixture
    def driver(self, tmp_path: Path) -> Iterator[Driver]:
        with open_driver(f"sqlite:///{tmp_path}/store") as driver:
            driver.migrate()
            yield driver

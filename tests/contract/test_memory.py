"""The contract suite on the memory driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver
from taskharbor.testing import DriverContract


class TestMemory(DriverContract):
    @pytest.fixture
    def driver(self) -> Iterator[Driver]:
        driver = open_driver("memory://")
        driver.migrate()
        yield driver
        driver.close()

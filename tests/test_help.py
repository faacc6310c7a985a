"""What Python's own help says about a driver."""

from __future__ import annotations

import inspect

import pytest

from taskharbor.core.contract import Driver
from taskharbor.drivers.jsonfile import JsonDriver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.drivers.postgres.driver import PostgresDriver
from taskharbor.drivers.sqlite.driver import SqliteDriver

OPERATIONS = sorted(name for name in dir(Driver) if not name.startswith("_"))


@pytest.mark.parametrize("driver", [MemoryDriver, JsonDriver, SqliteDriver, PostgresDriver, MysqlDriver])
def test_every_operation_of_every_driver_shows_its_promise(driver: type) -> None:
    assert [name for name in OPERATIONS if not inspect.getdoc(getattr(driver, name))] == []
    assert "DLQ" in (inspect.getdoc(driver.redrive) or "")  # type: ignore[attr-defined]

"""A PostgreSQL database of the test's own, and a driver on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver


@pytest.fixture
def url(postgres: Any) -> Iterator[str]:
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def driver(url: str) -> Iterator[Driver]:
    with open_driver(url) as driver:
        driver.migrate()
        yield driver

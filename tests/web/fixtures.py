"""A store in a temporary directory and a server on it, for each test: here and in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.web.serving import Served, served

from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with open_driver(f"sqlite:///{tmp_path}/jobs.db") as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def server(driver: Driver) -> Iterator[Served]:
    with served(driver) as running:
        yield running

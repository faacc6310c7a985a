"""Servers on SQLite in a temporary directory, unless a test brings a store of its own."""

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


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a module that change nothing in its store but tokens."""
    with open_driver(f"sqlite:///{tmp_path_factory.mktemp('standing')}/jobs.db") as opened:
        opened.migrate()
        with served(opened) as running:
            yield running

"""Servers on SQLite in a temporary directory, unless a test brings a store of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.web.fixtures import driver, server
from tests.web.serving import Served, served

from taskharbor.drivers import open_driver

__all__ = ["driver", "server", "standing"]


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a module that change nothing in its store but tokens."""
    with open_driver(f"sqlite:///{tmp_path_factory.mktemp('standing')}/jobs.db") as opened:
        opened.migrate()
        with served(opened) as running:
            yield running

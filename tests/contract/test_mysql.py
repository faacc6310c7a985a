"""The conformance suite on the MySQL driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from taskharbor.core.contract import Driver
from taskharbor.testing import DriverContract
from taskharbor.testing.emptying import SharedStore


@pytest.fixture(scope="module")
def store(mysql_url: str) -> Iterator[SharedStore]:
    with SharedStore(mysql_url) as store:
        yield store


class TestMysql(DriverContract):
    @pytest.fixture
    def driver(self, store: SharedStore) -> Driver:
        return store.driver()

"""The conformance suite on the PostgreSQL driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from taskharbor.core.contract import Driver
from taskharbor.testing import DriverContract
from taskharbor.testing.emptying import SharedStore


@pytest.fixture(scope="module")
def store(postgres_url: str) -> Iterator[SharedStore]:
    with SharedStore(postgres_url) as store:
        yield store


class TestPostgres(DriverContract):
    @pytest.fixture
    def driver(self, store: SharedStore) -> Driver:
        return store.driver()


@pytest.fixture(scope="module")
def pooled_store(pgbouncer_url: str) -> Iterator[SharedStore]:
    with SharedStore(pgbouncer_url) as store:
        yield store


class TestBehindPgbouncer(DriverContract):
    """The same behind a pooler in transaction mode, where each transaction may land on another connection."""

    hears_of_new_jobs = False

    @pytest.fixture
    def driver(self, pooled_store: SharedStore) -> Driver:
        return pooled_store.driver()

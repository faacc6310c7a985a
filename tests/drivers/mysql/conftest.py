"""What the tests of the MySQL and MariaDB driver share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.testing.emptying import empty_store
from taskharbor.testing.servers import MysqlServer


@pytest.fixture
def driver(mysql_url: str) -> Iterator[MysqlDriver]:
    with MysqlDriver(mysql_url) as driver:
        driver.migrate()
        empty_store(mysql_url)
        yield driver


@pytest.fixture
def empty_url(mysql: MysqlServer) -> Iterator[str]:
    """A database without tables, of this test alone."""
    url = mysql.create_database()
    yield url
    mysql.drop_database(url)

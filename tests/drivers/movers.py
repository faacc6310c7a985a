"""Stores to move, and moves that are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

from taskharbor.drivers import open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.moving import End, Move

KINDS = ("memory", "json", "sqlite", "postgres", "mysql")
RING = [pytest.param(pair, id="-".join(pair)) for pair in zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True)]
"""Each kind once as the old store and once as the new one."""
TWO = [pytest.param(pair, id="-".join(pair)) for pair in (("sqlite", "postgres"), ("mysql", "json"))]


class Killed(BaseException):
    """What a kill is to the process that is killed: nothing more is done."""


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], BaseDriver]]:
    """A new store of that kind."""
    opened: list[BaseDriver] = []

    def make(kind: str) -> BaseDriver:
        name = f"store-{len(opened)}"
        if kind in ("postgres", "mysql"):
            url = request.getfixturevalue(kind).create_database()
        else:
            url = {
                "memory": "memory://",
                "json": f"json:///{tmp_path}/{name}",
                "sqlite": f"sqlite:///{tmp_path}/{name}.db",
            }[kind]
        driver = open_driver(url)
        assert isinstance(driver, BaseDriver)
        driver.migrate()
        opened.append(driver)
        return driver

    yield make
    for driver in opened:
        driver.close()


def mover(source: BaseDriver, target: BaseDriver) -> Move:
    made = Move(End(source, "src"), End(target, "dst"))
    made.pace.settle_s = 0.0
    return made


class Faulty:
    """A carrier that ends the process at one of its writes: before it, or when it is done."""

    def __init__(self, carrier: Any, number: int, *, after: bool) -> None:
        self._carrier = carrier
        self._left = number
        self._after = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._carrier, name)
        if name not in ("bring", "clear", "write_notes", "lift"):
            return found

        def call(*given: Any) -> Any:
            self._left -= 1
            if self._left < 0 and not self._after:
                raise Killed
            answer = found(*given)
            if self._left < 0:
                raise Killed
            return answer

        return call


def connected(kind: str, url: str) -> Any:
    """A connection of an application, in a transaction."""
    if kind == "postgres":
        return psycopg.connect(url)
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=unquote(parts.password or ""),
        database=parts.path[1:],
    )
    connection.begin()
    return connection

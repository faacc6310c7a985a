"""The store of a harbor: opened when it is first needed, by whichever thread needs it first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from taskharbor.core.contract import Driver
from taskharbor.core.errors import DriverClosed
from taskharbor.core.forking import renew_locks
from taskharbor.core.limits import Limits

_EMBEDDED: Final = ("memory", "json", "sqlite")
"""Stores that nobody else administers: their tables are made when they are opened."""


class Store:
    def __init__(self, url: str, driver: Driver | None, limits: Limits | None, migrate: bool | None) -> None:
        self._url = url
        self._driver = driver
        self._limits = limits
        self._migrate = migrate
        self._given = driver is not None
        self._closed = False
        self._lock = threading.Lock()
        renew_locks(self, "_lock")

    @property
    def limits(self) -> Limits | None:
        return self._limits

    @property
    def is_open(self) -> bool:
        return self._driver is not None

    def driver(self) -> Driver:
        return self._driver if self._driver is not None else self._open()

    def _open(self) -> Driver:
        with self._lock:
            if self._closed:
                raise DriverClosed("this harbor was closed: make another one")
            if self._driver is None:
                self._driver = self._opened()
            return self._driver

    def _opened(self) -> Driver:
        # Here, because it takes longer to import than everything else that a harbor needs together.
        from taskharbor.drivers.opening import open_driver

        driver = open_driver(self._url, limits=self._limits)
        scheme = self._url.partition(":")[0].lower()
        if scheme in _EMBEDDED if self._migrate is None else self._migrate:
            try:
                driver.migrate()
            except BaseException:
                driver.close()
                raise
        return driver

    def close(self) -> None:
        """Close what was opened here; a driver that the caller gave is the caller's to close."""
        with self._lock:
            self._closed = True
            driver, self._driver = self._driver, None
        if driver is not None and not self._given:
            driver.close()

    @contextmanager
    def exchanged(self, other: Driver) -> Iterator[None]:
        """`other` in place of the driver, which is neither opened nor touched meanwhile."""
        with self._lock:
            before, self._driver = self._driver, other
        try:
            yield
        finally:
            with self._lock:
                self._driver = before

"""The store that a verb works on, open for the time of the verb."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import given_url, store_url
from taskharbor.core.errors import SchemaMissing

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver
    from taskharbor.drivers.opening import StoreURL

EMBEDDED: Final = ("memory", "json", "sqlite")
"""Stores without a server: nobody but this machine looks after their tables, so they are made when needed."""


@contextmanager
def opened(arguments: argparse.Namespace, *, create: bool = False) -> Iterator[Driver]:
    """The driver of `--url`, else of the application, else of the environment, the file, or the default.

    Embedded stores are migrated where it is needed. Only with `create` does one come into being: whoever lists the
    jobs of a mistyped path should hear that nothing is there, and leave nothing behind.
    """
    if arguments.app and given_url(arguments) is None:
        from taskharbor.cli.app import load_app

        harbor = load_app(arguments)
        try:
            yield harbor.driver
        finally:
            harbor.close()
        return
    from taskharbor.drivers.opening import open_driver, parse_url

    url = store_url(arguments)
    driver = open_driver(url)
    try:
        ready(driver, parse_url(url), create=create)
        yield driver
    finally:
        driver.close()


def ready(driver: Driver, url: StoreURL, *, create: bool) -> None:
    if url.scheme not in EMBEDDED or not (create or _exists(url)):
        return
    try:
        driver.queues()
    except SchemaMissing:
        driver.migrate()


def store_path(url: StoreURL) -> Path | None:
    """Where an embedded store is on this machine's disk."""
    return Path(url.path[1:]).absolute() if url.scheme in ("json", "sqlite") else None


def _exists(url: StoreURL) -> bool:
    path = store_path(url)
    with suppress(OSError):
        return path is None or path.exists()
    return True


def store_address(arguments: argparse.Namespace) -> str:
    """The URL of that store, without opening it. It may hold a password."""
    if arguments.app and given_url(arguments) is None:
        from taskharbor.cli.app import load_app

        return load_app(arguments).url
    return store_url(arguments)

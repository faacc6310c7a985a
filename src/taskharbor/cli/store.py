"""The store that a verb works on, open for the time of the verb."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import given_url, store_url
from taskharbor.core.errors import HOW_TO_MIGRATE, InvalidInput, SchemaMissing, StoreRefused

if TYPE_CHECKING:
    from taskharbor.app import Harbor
    from taskharbor.core.contract import Driver
    from taskharbor.drivers.opening import StoreURL

EMBEDDED: Final = ("memory", "json", "sqlite")
"""Stores without a server: nobody but this machine looks after their tables, so they are made when needed."""


@contextmanager
def opened(
    arguments: argparse.Namespace, *, create: bool = False, writes: bool = False, waits: bool = False
) -> Iterator[Driver]:
    """The driver of `--url`, else of the application, else of the environment, the file, or the default.

    Embedded stores are migrated where it is needed. Only with `create` does one come into being: whoever lists the
    jobs of a mistyped path, or of the file of another program, should hear that no jobs are there, and leave nothing
    behind.

    Whoever looks at a store that was moved is told so at once; whoever `writes`, if no error has told them.

    A memory store is gone with the verb: whoever writes to it, or `waits` for what others do there, is refused.
    """
    with _opened(arguments, create, lasting=create or writes or waits) as driver:
        if not (create or writes):
            _say_moved(driver)
        yield driver
        if writes:
            _say_moved(driver)


def _say_moved(driver: Driver) -> None:
    from taskharbor.core.carrying import departure_of

    departure = departure_of(driver)
    if departure is None:
        return
    if departure.gone:
        then = "what is shown here is as it was then"
    else:
        then = "nothing runs here meanwhile" if departure.shut else "what is shown here is what has not gone there yet"
    print(f"taskharbor: {departure.said}; {then}", file=sys.stderr)


@contextmanager
def _opened(arguments: argparse.Namespace, create: bool, *, lasting: bool) -> Iterator[Driver]:
    harbor = _harbor(arguments)
    if lasting:
        refuse_memory(store_url(arguments) if harbor is None else harbor.url)
    try:
        if harbor is None:
            with _opened_at(store_url(arguments), create) as driver:
                yield driver
            return
        try:
            if not create:
                _refuse_making(harbor)
            yield harbor.driver
        finally:
            harbor.close()
    except SchemaMissing as error:
        raise SchemaMissing(str(error).replace(HOW_TO_MIGRATE, f"run `{migrate_words(arguments)}`")) from None


def _refuse_making(harbor: Harbor) -> None:
    """An application makes its store when it opens it."""
    if harbor.url.partition(":")[0].lower() in ("json", "sqlite") and not harbor._store.is_open:
        with _opened_at(harbor.url, create=False):
            pass


@contextmanager
def _opened_at(url: str, create: bool) -> Iterator[Driver]:
    from taskharbor.drivers.opening import open_driver, parse_url

    driver = open_driver(url)
    try:
        if not create:
            refuse_absent(parse_url(url))
        ready(driver, parse_url(url), create=create)
        yield driver
    finally:
        driver.close()


def refuse_memory(url: str) -> None:
    if url.partition(":")[0].strip().lower() == "memory":
        raise InvalidInput(
            "memory:// lives and ends with its process: what is written there is gone when this command ends, and "
            "nobody else sees it. Give a store that stays, such as --url sqlite:///jobs.db"
        )


def ready(driver: Driver, url: StoreURL, *, create: bool) -> None:
    """Bring the tables of an embedded store up to date. Only with `create` are there any where none were."""
    if url.scheme not in EMBEDDED or not (create or is_there(url)):
        return
    try:
        driver.queues()
    except SchemaMissing as error:
        if not (create or error.older or url.scheme == "memory"):
            raise
        driver.migrate()


def refuse_absent(url: StoreURL) -> None:
    """A path that is mistyped is more often the cause than tables that are missing."""
    path = store_path(url)
    if path is not None and not is_there(url):
        if url.scheme == "sqlite" and not path.parent.is_dir():
            raise StoreRefused(f"the directory {path.parent} does not exist: create it, or correct the path")
        raise SchemaMissing(f"{path} does not exist: correct the path, or create the store: {HOW_TO_MIGRATE}")


def migrate_words(arguments: argparse.Namespace) -> str:
    """The command that makes the tables, with what was typed of the store."""
    if given_url(arguments) is not None:
        return "taskharbor --url … migrate"
    return "taskharbor -A … migrate" if arguments.app else "taskharbor migrate"


def store_path(url: StoreURL) -> Path | None:
    """Where an embedded store is on this machine's disk."""
    return Path(url.path[1:]).absolute() if url.scheme in ("json", "sqlite") else None


def is_there(url: StoreURL) -> bool:
    """Whether an embedded store has its file. Where nobody can tell, it is the driver that says what is wrong."""
    path = store_path(url)
    with suppress(OSError):
        return path is None or path.exists()
    return True


def store_address(arguments: argparse.Namespace) -> str:
    """The URL of that store, without opening it. It may hold a password."""
    harbor = _harbor(arguments)
    return store_url(arguments) if harbor is None else harbor.url


def _harbor(arguments: argparse.Namespace) -> Harbor | None:
    """The application, if the store is its affair. One that cannot be imported here is done without where the
    environment or the file names the store: whoever looks after jobs need not have the code that runs them."""
    if not arguments.app or given_url(arguments) is not None:
        return None
    from taskharbor.cli.app import BrokenApplication, MissingApplication, load_app

    try:
        return load_app(arguments)
    except (MissingApplication, BrokenApplication) as error:
        if not arguments.url:
            raise
        from taskharbor.drivers.opening import redacted

        print(f"taskharbor: on {redacted(arguments.url)}, without {arguments.app}: {error}", file=sys.stderr)
        return None

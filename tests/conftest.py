"""Servers, tiers and seeds for every test.

A test asks for a server by naming a fixture. Where the server cannot be had the test is skipped, visibly; with
TASKHARBOR_REQUIRE_ALL=1, as in CI, that is a failure, and so is every other skip.
"""

from __future__ import annotations

import gc
import logging
import os
import random
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.scheduling import FewSparks, in_order

from taskharbor.testing.servers import (
    GivenServer,
    MysqlServer,
    PostgresServer,
    ServerUnavailable,
    mysql_server,
    pgbouncer,
    postgres_server,
)

REQUIRE_ALL = os.environ.get("TASKHARBOR_REQUIRE_ALL", "") not in ("", "0")
SEED_NAME = "TASKHARBOR_TEST_SEED"
# Many tests start processes, and without bytecode each of these would compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
SLOW_MARKERS = ("slow", "concurrency", "process", "server")
# A quick run has the rules, the application and the suite on memory alone. The same promises on files and servers are
# thousands of tests more, and what waits for threads, commands, requests or Spark takes minutes.
FULL_RUN_ONLY = {
    *(Path(__file__).parent / name for name in ("browser", "cli", "drivers", "hard", "pipeline", "servers")),
    *(Path(__file__).parent / name for name in ("web", "worker")),
    *(Path(__file__).parent / "contract" / f"test_{name}.py" for name in ("json", "sqlite", "postgres", "mysql")),
}
SERVER_FIXTURES = {"postgres", "postgres_url", "mysql", "mysql_url", "pgbouncer_url"}
SERVER_NAMES = {"postgres", "postgresql", "mysql"}
"""Tests that get their store by its name ask for these fixtures only when they run."""

settings.register_profile(
    "taskharbor",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    # Not `explain`: it traces every line, which takes longer than everything else together.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
)
settings.load_profile("taskharbor")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Whatever a test sends log lines to is gone when it ends, so that no later test writes to a closed stream."""
    logger = logging.getLogger("taskharbor")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


# --- Tiers, skips and seeds --------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only the unit tier: no servers, no processes, seconds in all")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # In the environment, so that the processes of pytest-xdist share it.
    seed = os.environ.setdefault(SEED_NAME, str(random.SystemRandom().randrange(2**32)))
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = seed


def pytest_collection_finish() -> None:
    """What was collected stays until the end: no collection of cycles need walk over all of it again and again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let go at the end: extension modules complain of what nobody has collected."""
    gc.unfreeze()


def pytest_report_header() -> str:
    return f"seed: {os.environ[SEED_NAME]} (set {SEED_NAME} to it to run the same again)"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--fast") and collection_path in FULL_RUN_ONLY else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())) or _names_a_server(item):
            item.add_marker("server")
        # Here and not in the suite: it is for other people's drivers too, whose pytest knows none of our markers.
        if getattr(getattr(item, "function", None), "__qualname__", "").startswith("ConcurrencyContract."):
            item.add_marker("concurrency")
    if config.getoption("--fast"):
        slow = [item for item in items if any(item.get_closest_marker(name) for name in SLOW_MARKERS)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    items.sort(key=in_order)


def _names_a_server(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return any(isinstance(value, str) and value in SERVER_NAMES for value in parameters.values())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewSparks | None:
    return FewSparks(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself while it is imported has no tests to report: only its collection tells of it."""
    report = yield
    _fail_if_skipped(report)
    return report


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if REQUIRE_ALL and report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"TASKHARBOR_REQUIRE_ALL is set, so nothing may be skipped, but this was: {reason}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """The names alone, behind everything else: whoever sees but the end of a long log knows what failed."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    failed = [] if reporter is None else [*reporter.getreports("failed"), *reporter.getreports("error")]
    for report in failed:
        text = getattr(report.longrepr, "reprcrash", None) or report.longrepr
        reporter.write_line(f"{report.outcome}: {report.nodeid}: {' '.join(str(text).split())[:160]}")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> str:
    """A seed that differs from test to test, and is the same again when TASKHARBOR_TEST_SEED is."""
    return f"{os.environ[SEED_NAME]}:{request.node.nodeid}"


@pytest.fixture
def rng(seed: str) -> random.Random:
    return random.Random(seed)


# --- Servers -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer | GivenServer]:
    """The PostgreSQL of this run. Tests that stop a server start one of their own instead."""
    _refuse_in_the_unit_tier(request)
    # A time zone that is not UTC, so that a query which leans on the session's zone is found out.
    yield from _running(lambda: postgres_server(fast=True, settings={"timezone": "Asia/Kathmandu"}))


@pytest.fixture(scope="session")
def mysql(request: pytest.FixtureRequest) -> Iterator[MysqlServer | GivenServer]:
    """The MariaDB or MySQL of this run. Tests that stop a server start one of their own instead."""
    _refuse_in_the_unit_tier(request)
    yield from _running(lambda: mysql_server(fast=True, settings={"default-time-zone": "+05:45"}))


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer | GivenServer) -> str:
    """A PostgreSQL database that was empty when the run began."""
    return postgres.create_database()


@pytest.fixture(scope="session")
def mysql_url(mysql: MysqlServer | GivenServer) -> str:
    """A MariaDB or MySQL database that was empty when the run began."""
    return mysql.create_database()


@pytest.fixture(scope="session")
def pgbouncer_url(postgres: PostgresServer | GivenServer) -> Iterator[str]:
    """An empty PostgreSQL database behind a pooler in transaction mode."""
    for bouncer in _running(lambda: pgbouncer(postgres.create_database())):
        yield bouncer.url


def _refuse_in_the_unit_tier(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--fast"):
        pytest.fail("the unit tier starts no servers: mark the test with `server`")


def _running(make: Any) -> Iterator[Any]:
    try:
        context: AbstractContextManager[Any] = make()
        server = context.__enter__()
    except ServerUnavailable as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        context.__exit__(None, None, None)

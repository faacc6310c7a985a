"""One Spark for all tests of the pipeline: small, quick to start, and in all else as users get it.

Where Spark is not installed every module here is skipped, visibly; with TASKHARBOR_REQUIRE_ALL=1 that is a failure.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipeline.pasts import Past, Pasts

HERE = Path(__file__).parent
REQUIRE_ALL = os.environ.get("TASKHARBOR_REQUIRE_ALL", "") not in ("", "0")
NEEDED = ("pyspark", "pyarrow", "pandas", "deltalake", "adbc_driver_postgresql")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
STORES = ("json", "sqlite", "postgres", "mysql")
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    # What a page about the queries of the day would show.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
}


class WithoutSpark(pytest.Module):
    """A module of tests that cannot even be imported here."""

    def collect(self) -> Any:
        pytest.skip(f"no {', '.join(MISSING)} here: pip install 'taskharbor[spark]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if MISSING and not REQUIRE_ALL and module_path.is_relative_to(HERE):
        return WithoutSpark.from_parent(parent, path=module_path)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("spark")
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker("slow")
    if not MISSING:
        from tests.pipeline import quick_java

        quick_java.choose()  # for tests elsewhere that start a Spark, too


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark of this run, on one core. Tests that need another one start a process of their own."""
    from tests.pipeline import quick_java

    from taskharbor.pipeline import session

    place = tmp_path_factory.mktemp("spark")
    places = {"spark.sql.warehouse.dir": str(place / "warehouse"), "spark.local.dir": str(place / "local")}
    quick_java.choose()
    making = quick_java.making()
    started = session("local[1]", **QUICK, **places, **{"spark.driver.extraJavaOptions": quick_java.chosen()})
    yield started
    started.stop()
    if making is not None:
        quick_java.leave(making)


@pytest.fixture(autouse=True)
def _java_starts_soon() -> None:
    """In the processes that a test starts, too."""
    if not MISSING:
        from tests.pipeline import quick_java

        quick_java.choose()


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind that the pipeline reads."""
    match request.param:
        case "json":
            return f"json:///{tmp_path / 'store'}"
        case "sqlite":
            return f"sqlite:///{tmp_path / 'jobs.db'}"
        case name:
            url: str = request.getfixturevalue(name).create_database()
            return url


@pytest.fixture
def driver(store_url: str) -> Iterator[Driver]:
    """The driver of `store_url`, migrated."""
    opened = open_driver(store_url)
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def sqlite_driver(sqlite_url: str) -> Iterator[Driver]:
    opened = open_driver(sqlite_url)
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def kept_pasts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.pipeline.pasts import Kept

    return Kept(spark, tmp_path_factory.mktemp("pasts"))


@pytest.fixture
def past(kept_pasts: Any, tmp_path: Path) -> Iterator[Pasts]:
    """Copies of a store with a past and its lake: see `pasts`."""
    opened: list[Driver] = []

    def copied(lead: Any, *, max_rows: int | None = None, **words: Any) -> Past:
        found: Past = kept_pasts.copy(tmp_path, lead, max_rows, words)
        opened.append(found.driver)
        return found

    yield copied
    for driver in opened:
        driver.close()

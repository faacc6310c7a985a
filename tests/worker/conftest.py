from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskharbor import Backoff, Harbor
from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver
from taskharbor.worker import farewell, heartbeat
from taskharbor.worker.runtime import Worker

AT_ONCE = Backoff(base=0)
Start = Callable[..., Worker]
Opener = Callable[[], Driver]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second and more between two looks is right for a store that many share, and idle time for a test."""
    monkeypatch.setattr(heartbeat, "TICK_S", 0.1)
    monkeypatch.setattr(heartbeat, "TELL_START_S", 0.05)
    monkeypatch.setattr(heartbeat, "CANCEL_LOOK_S", 0.05)


@pytest.fixture
def unheeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For handlers that are known not to heed a stop: nobody waits for them for long."""
    monkeypatch.setattr(farewell, "HEED_S", 0.05)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def harbor(url: str) -> Iterator[Harbor]:
    """An application without tasks, whose failed jobs run again at once."""
    with Harbor(url, retry=AT_ONCE) as made:
        yield made


@pytest.fixture
def start(harbor: Harbor) -> Iterator[Start]:
    """Starts workers, which are stopped in a hurry when the test is over."""
    started: list[Worker] = []

    def make(queues: Any = None, *, of: Harbor | None = None, **options: Any) -> Worker:
        worker = (of or harbor).worker(queues, **{"fleet": False, **options})
        started.append(worker)
        worker.start()
        return worker

    yield make
    for worker in started:
        worker.hurry()
        worker.stop()


@pytest.fixture
def reopen(url: str) -> Iterator[Opener]:
    """Opens the same store once more, as another process would."""
    opened: list[Driver] = []

    def opener() -> Driver:
        driver = open_driver(url)
        driver.migrate()
        opened.append(driver)
        return driver

    yield opener
    for driver in opened:
        driver.close()


@pytest.fixture
def driver(reopen: Opener) -> Driver:
    return reopen()

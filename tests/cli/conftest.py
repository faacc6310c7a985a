"""What the tests of the command line share."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver

_numbers = itertools.count()

APPLICATION = """\
from taskharbor import Harbor

harbor = Harbor()


@harbor.task(name="email.send", queue="mail", priority=5)
def send(to: str, times: int = 1) -> dict:
    if times < 0:
        raise ValueError("times is negative")
    return {"sent": to}


@harbor.periodic("0 6 * * *")
@harbor.task(name="report.build")
def build() -> None: ...
"""


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if search := os.environ.get("PYTHONPATH"):  # for processes that tests start
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(p).absolute()) for p in search.split(os.pathsep)))
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("TASKHARBOR_") and "TEST" not in name and name != "TASKHARBOR_REQUIRE_ALL":
            monkeypatch.delenv(name)
    monkeypatch.setenv("TASKHARBOR_URL", "")  # undone after the test, even if an application set it
    monkeypatch.setenv("TASKHARBOR_ENCRYPTION_KEYS", "")


@pytest.fixture
def driver() -> Iterator[Driver]:
    """The default store of the directory."""
    opened = open_driver("sqlite:///taskharbor.db")
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command with --json, and return what it printed; the exit code must be `code`."""

    def run(*words: str, code: int = 0) -> Any:
        assert main(["--json", *words]) == code, capsys.readouterr().err
        out = capsys.readouterr().out
        return json.loads(out) if out else None

    return run


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command as people do, and return what it said on both streams."""

    def say(*words: str, code: int = 0) -> str:
        found = main(list(words))
        said = capsys.readouterr()
        assert found == code, said.err
        return said.out + said.err

    return say


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with an application, under a name of its own, because modules are imported once."""
    name = f"shop{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(APPLICATION)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return name


def enqueued(driver: Driver, *jobs: NewJob) -> list[str]:
    return [answer.id for answer in driver.enqueue(list(jobs))]


def killed(driver: Driver, count: int, type: str = "email.send", reason: str = "no such host") -> list[str]:
    """So many jobs in the DLQ."""
    ids = enqueued(driver, *(NewJob(type, b'{"to":"ada"}', "mail") for _ in range(count)))
    for leased in driver.reserve("mail", limit=count):
        driver.fail(leased.job.id, leased.lease.token, reason=reason)
    return ids

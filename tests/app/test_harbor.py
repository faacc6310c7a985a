"""The harbor itself: its store, its schedules, its worker."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import taskharbor
from taskharbor import DriverClosed, Harbor, InvalidArguments, InvalidInput, Schedule, SchemaMissing, Task
from taskharbor.drivers import open_driver


def test_without_a_url_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_URL", "memory://named")
    assert Harbor().url == "memory://named"
    assert Harbor("memory://").url == "memory://"
    monkeypatch.delenv("TASKHARBOR_URL")
    assert Harbor().url == "sqlite:///taskharbor.db"


def test_the_store_is_opened_when_it_is_needed_and_its_tables_are_made(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    with Harbor(f"sqlite:///{file}") as harbor:
        assert not file.exists()
        harbor.enqueue("t")
    assert file.exists()


def test_tables_are_made_only_if_wanted(tmp_path: Path) -> None:
    with Harbor(f"sqlite:///{tmp_path}/jobs.db", migrate=False) as harbor, pytest.raises(SchemaMissing):
        harbor.enqueue("t")


def test_a_closed_harbor_says_so_and_may_be_closed_again() -> None:
    for harbor in (Harbor("memory://"), Harbor("memory://")):
        harbor.close()
        harbor.close()
        with pytest.raises(DriverClosed, match="this harbor was closed"):
            harbor.enqueue("t")


def test_a_driver_that_was_given_stays_open() -> None:
    driver = open_driver("memory://")
    with Harbor(driver=driver) as harbor:
        id = harbor.enqueue("t").id
    assert driver.get(id).type == "t"


def test_no_password_is_ever_shown() -> None:
    assert repr(Harbor("postgresql://ada:secret@host/db")) == "Harbor('postgresql://ada:***@host/db')"


def test_something_else_than_a_url_is_refused() -> None:
    with pytest.raises(InvalidInput, match="takes the URL of a store"):
        Harbor(5)  # type: ignore[arg-type]


def test_a_codec_of_ones_own_writes_payloads() -> None:
    class Reversed:
        def encode(self, value: Any) -> bytes:
            return repr(value).encode()[::-1]

        def decode(self, data: bytes) -> Any:
            return {"seen": data[::-1].decode()}

    harbor = Harbor("memory://", codec=Reversed())
    task = harbor.task(name="t")(lambda **given: given)
    id = task.enqueue(a=1).id
    assert harbor.job(id).record.payload == b"}1 :'a'{"
    assert harbor.job(id).arguments == {"seen": "{'a': 1}"}


def test_every_public_name_can_be_had_and_is_listed() -> None:
    for name in taskharbor.__all__:
        assert getattr(taskharbor, name) is not None
        assert name in dir(taskharbor)
    with pytest.raises(AttributeError, match="no attribute 'Harbour'"):
        _ = taskharbor.Harbour  # type: ignore[attr-defined]


@pytest.mark.process
def test_an_application_without_pydantic_models_never_imports_pydantic() -> None:
    script = (
        "import sys, taskharbor; h = taskharbor.Harbor('memory://')\n"
        "@h.task\ndef send(to: str) -> None: ...\n"
        "send.enqueue('a'); print('pydantic' in sys.modules, 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == (
        "False False\n"
    )


def test_a_worker_is_made_for_the_harbor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    stub = types.ModuleType("taskharbor.worker.runtime")
    stub.Worker = lambda *args, **options: seen.append((args, options))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "taskharbor.worker.runtime", stub)
    harbor = Harbor("memory://")
    harbor.worker({"mail": 2}, concurrency=3)
    assert seen == [((harbor, {"mail": 2}), {"concurrency": 3})]


# --- Schedules -------------------------------------------------------------------------------------------------


@pytest.fixture
def harbor() -> Harbor:
    return Harbor("memory://", queue="slow")


def report(kind: str = "daily") -> None: ...


def test_a_periodic_function_becomes_a_task_with_a_schedule(harbor: Harbor) -> None:
    task = harbor.periodic("*/5 * * * *", timezone="Europe/Paris")(report)
    assert isinstance(task, Task)
    assert harbor.tasks == {"report": task}
    schedule = harbor.schedules["report"]
    assert isinstance(schedule, Schedule)
    assert (schedule.name, schedule.spec, schedule.timezone, schedule.type) == (
        "report",
        "*/5 * * * *",
        "Europe/Paris",
        "report",
    )
    assert (schedule.payload, schedule.queue, schedule.overlap) == (b"{}", "slow", "skip")


def test_a_task_can_have_several_schedules_with_options_of_their_own(harbor: Harbor) -> None:
    task = harbor.task(name="reports.send", queue="mail", max_attempts=2)(report)
    assert harbor.periodic("@every 10m")(task) is task
    again = harbor.periodic(
        "0 8 * * 1", name="weekly", overlap="allow", arguments={"kind": "weekly"}, priority=3, tenant="acme"
    )
    assert again(task) is task
    weekly = harbor.schedules["weekly"]
    assert (weekly.type, weekly.payload, weekly.priority) == ("reports.send", b'{"kind":"weekly"}', 3)
    assert (weekly.tenant_id, weekly.queue, weekly.max_attempts, weekly.overlap) == ("acme", "mail", 2, "allow")
    assert set(harbor.schedules) == {"reports.send", "weekly"}


def test_a_second_schedule_of_the_same_name_is_refused(harbor: Harbor) -> None:
    task = harbor.periodic("0 8 * * *")(report)
    with pytest.raises(InvalidInput, match="there is a schedule 'report' already: give this one another name="):
        harbor.periodic("0 9 * * *")(task)


def test_a_module_that_is_read_again_replaces_its_schedules(harbor: Harbor) -> None:
    harbor.periodic("0 8 * * *")(report)
    harbor.periodic("0 9 * * *")(report)
    assert harbor.schedules["report"].spec == "0 9 * * *"


@pytest.mark.parametrize(
    ("spec", "options", "problem"),
    [
        ("every now and then", {}, "field"),
        ("* * * *", {}, "field"),
        ("0 8 * * *", {"timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ("0 8 * * *", {"overlap": "queue"}, "overlap must be"),
        ("0 8 * * *", {"name": ""}, "name must not be empty"),
        ("0 8 * * *", {"arguments": {"kind": 5}}, "argument 'kind' must be str"),
        ("0 0 30 2 *", {}, "never fires"),
        ("0 8 * * *", {"key": "k"}, "has no key, .*arguments, .*overlap, .*timezone"),
        ("0 8 * * *", {"overlpa": "skip"}, "did you mean 'overlap'"),
        ("0 8 * * *", {"delay": 5}, "has no delay"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_where_it_is_defined(
    harbor: Harbor, spec: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        harbor.periodic(spec, **options)(report)
    assert not harbor.schedules


def test_a_schedule_must_give_what_the_function_needs(harbor: Harbor) -> None:
    def needy(to: str) -> None: ...

    with pytest.raises(InvalidArguments, match=r"missing argument 'to'.*arguments="):
        harbor.periodic("0 8 * * *")(needy)

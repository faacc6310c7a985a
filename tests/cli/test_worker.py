"""`worker`, and `-A`: from a name to an application."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.cli import main
from taskharbor.cli.command import build_parser
from taskharbor.cli.options import resolve
from taskharbor.cli.worker import words_for_one, worker_settings
from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver
from taskharbor.worker import supervisor

Run = Callable[..., Any]
Say = Callable[..., str]

STORE = "json:///store"


def resolved(*words: str) -> Any:
    parser = build_parser()
    return resolve(parser.parse_args(words), parser)


@contextmanager
def looking() -> Iterator[Driver]:
    """The store of the workers, open for a moment."""
    store = open_driver(STORE)
    try:
        store.migrate()
        yield store
    finally:
        store.close()


def done_jobs() -> int:
    with looking() as store:
        return store.counts()["done"]


def workers_up() -> int:
    with looking() as store:
        return len(store.workers())


def test_every_flag_reaches_the_worker() -> None:
    words = ["-q", "default:4,mail", "--concurrency", "3", "--max-jobs", "9", "--grace", "1m", "--lease", "10"]
    assert worker_settings(resolved("worker", *words, "--take-all", "--name", "ada")) == {
        "queues": {"default": 4, "mail": 3},
        "concurrency": 3,
        "max_jobs": 9,
        "grace_s": 60,
        "lease_s": 10,
        "take_all": True,
        "name": "ada",
    }


def test_what_is_not_asked_for_is_left_to_the_worker() -> None:
    assert worker_settings(resolved("worker")) == {}
    assert worker_settings(resolved("worker", "-q", "a,b")) == {"queues": ["a", "b"]}


def test_one_of_several_processes_is_told_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_PROCESSES", "4")
    words = ["-A", "x", "worker", "-q", "a:2,b", "--lease", "1m", "--take-all", "--log-format", "json"]
    told = words_for_one(resolved(*words))
    assert told == ["--processes", "1", "--queues", "a:2,b", "--lease", "60.0", "--take-all", "--log-format", "json"]
    assert resolved("-A", "x", "worker", *told).processes == 1


@pytest.mark.process
def test_a_drain_runs_what_is_there_and_prints_the_counts(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_URL", STORE)
    good, bad = b'{"to":"ada"}', b'{"to":"ada","times":-1}'
    with looking() as store:
        jobs = [NewJob("email.send", each, "mail", max_attempts=1) for each in (good, bad)]
        ids = [answer.id for answer in store.enqueue(jobs)]
    done = subprocess.run(
        [sys.executable, "-m", "taskharbor", "-A", app, "worker", "--drain", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert (counts["done"], counts["dead"]) == (1, 1)
    assert "default:10, mail:10; 2 handlers" in done.stderr
    assert "ada" not in done.stderr, "no payload in the log"
    with looking() as store:
        assert [store.get(id).status for id in ids] == ["done", "dlq"]


@pytest.mark.process
@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_runs_until_it_is_told_to_stop(processes: int, app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_URL", STORE)
    with looking() as store:
        store.enqueue([NewJob("email.send", b'{"to":"ada"}', "mail") for _ in range(20)])
    words = ["worker", "-q", "mail:2", "--processes", str(processes), "--log-format", "json"]
    worker = subprocess.Popen(
        [sys.executable, "-m", "taskharbor", "-A", f"{app}:harbor", *words], stderr=subprocess.PIPE, text=True
    )
    try:
        limit = time.monotonic() + 30
        # Not before all of them are up: one that is told to stop while it starts has nothing to put in order.
        while (done_jobs() < 20 or workers_up() < processes) and time.monotonic() < limit:
            time.sleep(0.1)
        worker.send_signal(signal.SIGINT)
        _, said = worker.communicate(timeout=30)
    finally:
        worker.kill()
        worker.wait()
    assert done_jobs() == 20, said
    assert worker.returncode == 0, said
    assert workers_up() == 0
    lines = [json.loads(line) for line in said.splitlines()]
    named = {line.get("worker") for line in lines if line["logger"] == "taskharbor.worker"}
    assert (None in named, len(named)) == (False, processes), "each line says which process has written it"


def test_a_worker_without_an_application_says_what_to_name(say: Say) -> None:
    assert "-A" in say("worker", code=2)


def test_a_worker_refuses_a_store_that_the_application_does_not_use(say: Say, tmp_path: Path) -> None:
    Path("fixed_store.py").write_text('from taskharbor import Harbor\nharbor = Harbor("sqlite:///own.db")\n')
    said = say("-A", "fixed_store", "--url", "postgresql://u:s3cr3t@h/d", "worker", code=2)
    assert "sqlite:///own.db" in said
    assert "s3cr3t" not in said


def test_a_name_is_for_one_process_and_refused_for_several(say: Say, app: str) -> None:
    assert "--name is for one process" in say("-A", app, "worker", "--processes", "2", "--name", "ada", code=2)


# --- memory:// ---------------------------------------------------------------------------------------------

IN_MEMORY = """\
from taskharbor import Harbor

harbor = Harbor({url})


@harbor.task(name="x")
def x() -> None: ...


x.enqueue()
"""


@pytest.mark.parametrize(
    "line",
    [
        "enqueue x",
        "enqueue x --many -",
        "jobs cancel some-id",
        "jobs wait some-id",
        "dlq redrive --all",
        "queues pause mail",
        "queues limit mail --concurrency 1",
        "schedules run nightly",
        "schedules remove nightly",
        "stats --watch",
        "token create --tenant acme --role admin",
        "serve --port 0",
        "serve --port 0 --processes 2",
    ],
)
@pytest.mark.parametrize("named", ["url", "environment", "application"])
def test_a_verb_refuses_memory_where_all_it_does_would_be_lost(
    line: str, named: str, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = {"url": ["--url", "memory://"], "environment": [], "application": ["-A", "app_memory_verbs"]}[named]
    if named == "environment":
        monkeypatch.setenv("TASKHARBOR_URL", "memory://shared")
    Path("app_memory_verbs.py").write_text(IN_MEMORY.format(url="'memory://'"))
    said = say(*words, *line.split(), code=2)
    assert "memory:// lives and ends with its process" in said
    assert "--url sqlite:///jobs.db" in said


def test_a_worker_runs_on_memory_where_the_application_enqueues_in_the_same_process(
    run: Run, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("app_memory.py").write_text(IN_MEMORY.format(url="'memory://'"))
    assert run("-A", "app_memory", "worker", "--drain")["counts"]["done"] == 1
    said = say("-A", "app_memory", "worker", "--drain", "--processes", "2", code=2)
    assert "memory:// is for one process" in said
    assert "sqlite:///jobs.db" in said


@pytest.mark.parametrize("named", ["url", "environment"])
def test_a_worker_refuses_memory_that_the_application_has_not_chosen(
    named: str, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("app_open.py").write_text(IN_MEMORY.format(url=""))
    if named == "environment":
        monkeypatch.setenv("TASKHARBOR_URL", "memory://")
    words = ["--url", "memory://"] if named == "url" else []
    assert "memory:// lives and ends" in say(*words, "-A", "app_open", "worker", "--drain", code=2)


# --- -A ----------------------------------------------------------------------------------------------------

TWO = "from taskharbor import Harbor\nfirst = Harbor('memory://')\nsecond = Harbor('memory://')\n"


@pytest.mark.parametrize(
    ("name", "text", "asked", "code", "cure"),
    [
        ("", "", "nowhere_at_all", 2, "PYTHONPATH"),
        ("", "", "shop/jobs.py", 2, "no .py"),
        ("", "", ":harbor", 2, "MODULE:HARBOR"),
        ("app_empty", "", "app_empty", 2, "harbor = Harbor"),
        ("", "", "os", 2, "os has no Harbor in it: write harbor = Harbor(…) there, or name the module that has one"),
        ("", "", "os:nothing", 2, "os has no 'nothing': write harbor = Harbor(…) there"),
        ("", "", "os:abort", 2, "os:abort is no Harbor but of the type builtin_function_or_method: write harbor ="),
        ("app_two", TWO, "app_two", 2, "-A app_two:first"),
        ("app_two_b", TWO, "app_two_b:frist", 2, "did you mean app_two_b:first?"),
        ("app_number", "harbor = 5\n", "app_number:harbor", 2, "is no Harbor but of the type int"),
        ("app_needs", "import not_installed_here\n", "app_needs", 1, "not_installed_here"),
        ("app_broken", "1 / 0\n", "app_broken", 1, "ZeroDivisionError"),
        ("app_syntax", "def\n", "app_syntax", 1, "SyntaxError"),
        ("app_secret", "raise OSError('redis://me:s3cr3t@host is away')\n", "app_secret", 1, "redis://me:***@host"),
        ("app_ends", "raise SystemExit(0)\n", "app_ends", 1, "SystemExit"),
    ],
)
def test_an_application_that_cannot_be_had_is_one_line_with_the_cure(
    name: str, text: str, asked: str, code: int, cure: str, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    if name:
        Path(f"{name}.py").write_text(text)
    said = say("-A", asked, "jobs", "list", code=code)
    assert cure in said
    assert said.count("\n") == 1


def test_a_package_whose_harbor_is_in_one_of_its_modules_is_answered_with_that(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("app_package").mkdir()
    Path("app_package/__init__.py").write_text("from app_package import inner\n")
    Path("app_package/inner.py").write_text("from taskharbor import Harbor\nours = Harbor()\n")
    said = say("-A", "app_package", "worker", code=2)
    assert "app_package has no Harbor in it: did you mean app_package.inner:ours?" in said


def test_verbs_without_handlers_use_the_store_of_the_application(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("own_store.py").write_text('from taskharbor import Harbor\nharbor = Harbor("sqlite:///own.db")\n')
    main(["enqueue", "x", "--url", "sqlite:///own.db"])
    monkeypatch.setenv("TASKHARBOR_APP", "own_store")
    monkeypatch.setenv("TASKHARBOR_URL", "sqlite:///other.db")
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as out:
        assert main(["jobs", "list", "--json"]) == 0
    assert len(json.loads(out.getvalue())["jobs"]) == 1
    assert not Path("other.db").exists()


def test_a_store_in_words_needs_no_application(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    driver.enqueue([NewJob("x")])
    monkeypatch.setenv("TASKHARBOR_APP", "nowhere_at_all")
    assert main(["jobs", "list", "--url", "sqlite:///taskharbor.db"]) == 0
    assert main(["stats", "--url", "sqlite:///taskharbor.db"]) == 0


@pytest.mark.parametrize("source", ["environment", "file"])
def test_a_store_that_is_named_anywhere_needs_no_application_to_be_looked_at(
    source: str, say: Say, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "file":
        Path("taskharbor.toml").write_text('url = "sqlite:///taskharbor.db"\napp = "nowhere_at_all"\n')
    else:
        monkeypatch.setenv("TASKHARBOR_URL", "sqlite:///taskharbor.db")
        monkeypatch.setenv("TASKHARBOR_APP", "nowhere_at_all")
    driver.enqueue([NewJob("x", queue="there")])
    said = say("queues", "list")
    assert "there" in said
    assert "without nowhere_at_all" in said, "it says what it did without"
    assert "no module 'nowhere_at_all'" in say("enqueue", "x", code=2), "a job is checked, or not enqueued"


def test_an_application_alone_must_be_there(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_APP", "nowhere_at_all")
    assert "no module" in say("stats", code=2)


@pytest.mark.process
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_finds_the_application_of_a_file_above(processes: str, tmp_path: Path) -> None:
    (tmp_path / "shop_above.py").write_text(
        "from taskharbor import Harbor\nharbor = Harbor()\n@harbor.task\ndef ping() -> None: ...\n"
    )
    Path("taskharbor.toml").write_text('app = "shop_above"\nurl = "json:///store"\n')
    below = tmp_path / "deep" / "down"
    below.mkdir(parents=True)
    with looking() as store:
        store.enqueue([NewJob("ping", b"{}")])
    done = subprocess.run(
        [sys.executable, "-m", "taskharbor", "worker", "--drain", "--processes", processes],
        cwd=below, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done_jobs() == 1
    assert not list(below.iterdir())


def test_a_rule_for_a_name_that_looks_like_a_slip_is_doubted(app: str, tmp_path: Path, say: Say) -> None:
    with (tmp_path / f"{app}.py").open("a") as file:
        file.write(
            "harbor.limit(type='email.sned', rate=1)\nharbor.queue('mial')\nharbor.limit(queue='bulk', rate=1)\n"
        )
    said = say("-A", app, "worker", "--drain")
    assert "names the type email.sned, which has a limit: did you mean email.send?" in said
    assert "names the queue mial, which has a share: did you mean mail?" in said
    assert "bulk" not in said


@pytest.mark.parametrize(("queues", "is_doubted"), [("mial,default", True), ("mail", False)])
def test_a_queue_that_no_task_names_is_doubted(queues: str, is_doubted: bool, app: str, say: Say) -> None:
    said = say("-A", app, "worker", "-q", queues, "--drain")
    assert ("no task of the application names the queue mial: did you mean mail?" in said) is is_doubted


def test_a_drain_says_how_many_are_left_for_later(app: str, run: Run, driver: Driver) -> None:
    later = driver.now() + timedelta(hours=1)
    driver.enqueue([NewJob("report.build", b"{}"), NewJob("report.build", b"{}", run_at=later)])
    counts = run("-A", app, "worker", "--drain", "--name", "ada")["counts"]
    assert (counts["done"], counts["left"]) == (1, 1)


def test_a_drain_counts_apart_what_nobody_here_handles(app: str, run: Run, driver: Driver) -> None:
    later = driver.now() + timedelta(hours=1)
    driver.enqueue([NewJob("report.build", b"{}", run_at=later), *(NewJob("foreign", b"{}") for _ in range(3))])
    driver.enqueue([NewJob("foreign", b"{}", queue="elsewhere")])
    counts = run("-A", app, "worker", "--drain", "--name", "ada")["counts"]
    assert (counts["done"], counts["left"], counts["unhandled"]) == (0, 4, 3)


def test_a_drain_counts_what_others_have_a_lease_on(app: str, run: Run, driver: Driver) -> None:
    """They may be at work on it, or may have died."""
    driver.enqueue([NewJob("report.build", b"{}") for _ in range(3)])
    driver.reserve("default", limit=2, lease_for=timedelta(hours=1))
    counts = run("-A", app, "worker", "--drain", "--name", "ada")["counts"]
    assert (counts["done"], counts["left"], counts["inflight"]) == (1, 0, 2)


def test_a_drain_that_is_stopped_before_its_processes_begin_prints_its_document(
    app: str, run: Run, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.enqueue([NewJob("report.build", b"{}")])
    monkeypatch.setattr(supervisor, "run", lambda *_: 0)  # nobody has told anything
    counts = run("-A", app, "worker", "--drain", "--processes", "2")["counts"]
    assert (counts["done"], counts["left"]) == (0, 1)


LOUD = """\
import os, subprocess, sys
from taskharbor import Harbor

print("imported")
harbor = Harbor()

@harbor.task
def here() -> None:
    print("from a thread")
    subprocess.run(["echo", "from a program"], check=True)
    os.write(1, b"from far below\\n")

@harbor.task(pool="process")
def apart() -> None:
    print("from a child")
"""


@pytest.mark.process
@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_handlers_print_does_not_come_into_the_document_of_a_drain(processes: str, tmp_path: Path) -> None:
    (tmp_path / "loud_app.py").write_text(LOUD)
    with looking() as store:
        store.enqueue([NewJob("here", b"{}"), NewJob("apart", b"{}"), NewJob("foreign", b"{}")])
    done = subprocess.run(
        [sys.executable, "-m", "taskharbor", "--url", STORE, "-A", "loud_app", "worker", "--drain", "--json",
         "--processes", processes, "-q", "default"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert (counts["done"], counts["left"], counts["unhandled"]) == (2, 1, 1)
    for said in ("imported", "from a thread", "from a program", "from far below", "from a child"):
        assert said in done.stderr


@pytest.mark.process
def test_a_drain_with_several_processes_prints_one_sum(app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_URL", STORE)
    with looking() as store:
        store.enqueue([NewJob("email.send", b'{"to":"ada"}', "mail") for _ in range(20)])
    done = subprocess.run(
        [sys.executable, "-m", "taskharbor", "-A", app, "worker", "--drain", "--processes", "2"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    headings, _, counts = done.stdout.splitlines()
    assert dict(zip(headings.split(), counts.split(), strict=True))["done"] == "20"

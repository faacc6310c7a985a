"""Several processes under one parent, with programs that are no workers but behave like good and bad ones."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.waiting import until

from taskharbor.worker import supervisor
from taskharbor.worker.supervisor import Supervisor

pytestmark = pytest.mark.process


def crew(text: str, processes: int = 2) -> Supervisor:
    return Supervisor([sys.executable, "-c", text], processes)


def test_workers_that_can_never_start_are_not_started_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "taskharbor"):
        assert crew("raise SystemExit(2)").run() == 2
    assert sum("usage error" in record.message for record in caplog.records) == 1
    assert "starting it again" not in caplog.text


def test_workers_whose_store_refuses_them_are_not_started_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "taskharbor"):
        assert crew(f"raise SystemExit({supervisor.REFUSED})").run() == 1
    assert sum("waiting does not help" in record.message for record in caplog.records) == 1
    assert "starting it again" not in caplog.text, "it is not"


def test_one_that_fails_alone_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.05)
    monkeypatch.chdir(tmp_path)
    # The first to make the directory goes on, the other one fails until it finds a second one.
    text = """
import os, sys, time
for name in ("first", "second", "third"):
    try:
        os.mkdir(name)
    except FileExistsError:
        continue
    ends = time.monotonic() + 60
    while name == "first" and not os.path.isdir("third") and time.monotonic() < ends:
        time.sleep(0.01)
    sys.exit(2 if name == "second" else 0)
"""
    assert crew(text).run() == 0
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second", "third"}
    refused, again = caplog.messages
    assert refused.endswith("ended with exit code 2: waiting does not cure that")
    assert again.startswith("others run: starting worker process")


def test_other_failures_at_the_start_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is not there yet, for one."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.05)
    monkeypatch.chdir(tmp_path)
    text = "import os, sys; open(f'ran-{os.getpid()}', 'w'); sys.exit(1 if len(os.listdir()) < 5 else 0)"
    assert crew(text).run() == 0
    assert len(list(tmp_path.iterdir())) >= 5


def test_a_process_that_does_not_end_after_the_second_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "HURRY_S", 0.3)
    monkeypatch.chdir(tmp_path)
    text = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("begun", "w").close()
time.sleep(60)
"""

    def stop_twice(parent: Supervisor) -> None:
        until((tmp_path / "begun").exists, "it has begun")
        for told in (1, 2):
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda told=told: parent._crew[0].told == told, "it is told")  # type: ignore[misc]

    parent = crew(text, 1)
    threading.Thread(target=stop_twice, args=(parent,), daemon=True).start()
    assert parent.run() == 1
    assert "worker process 0 does not end and is killed" in caplog.text


def test_each_process_tells_its_parent_in_the_end_what_it_did() -> None:
    heard: list[bytes] = []
    text = """
import os, subprocess, sys
from taskharbor.worker.supervisor import parents_ear
ear = parents_ear()
os.write(ear, b"did it")
# Somebody who was left behind and holds on to everything must not keep the parent waiting.
subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=(ear,))
"""
    assert Supervisor([sys.executable, "-c", text], 2, hear=heard.append).run() == 0
    assert heard == [b"did it", b"did it"]


def test_a_process_that_is_killed_is_told_by_the_name_of_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.05)
    monkeypatch.chdir(tmp_path)
    text = (
        "import os, signal; os.path.exists('ran') or open('ran', 'w').close() or os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert crew(text, processes=1).run() == 0
    assert caplog.messages == ["worker process 0 was killed by SIGKILL: starting it again in 0.1 s"]


def run_two(module: str, here: Path) -> subprocess.CompletedProcess[str]:
    """`taskharbor worker` with two processes, which is expected to end by itself."""
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-m", "taskharbor", "-A", module, "worker", "--processes", "2"],
        cwd=here, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_store_that_waiting_cannot_cure_ends_the_command_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "a_file").touch()
    (tmp_path / "lost_app.py").write_text(
        "from taskharbor import Harbor\nharbor = Harbor('sqlite:///a_file/jobs.db')\n\n"
        "@harbor.task\ndef nothing() -> None: ...\n"
    )
    ended = run_two("lost_app", tmp_path)
    assert ended.returncode == 1, ended.stderr
    announced, said = ended.stderr.splitlines()
    assert "with 2 processes" in announced
    assert said.startswith("taskharbor: ")
    assert "a_file" in said


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_database_without_tables_ends_the_command_with_one_line(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(kind).create_database()
    (tmp_path / "new_app.py").write_text(
        f"from taskharbor import Harbor\nharbor = Harbor({url!r})\n\n@harbor.task\ndef nothing() -> None: ...\n"
    )
    ended = run_two("new_app", tmp_path)
    assert ended.returncode == 1, ended.stderr
    announced, said = ended.stderr.splitlines()
    assert "with 2 processes" in announced
    assert said.startswith("taskharbor: there are no TaskHarbor tables (called th_…) in the database yet: ")


def test_a_store_that_refuses_only_later_ends_the_command_too(tmp_path: Path) -> None:
    (tmp_path / "a_file").touch()
    (tmp_path / "later_app.py").write_text(
        "import os\nfrom taskharbor import Harbor\n"
        "place = 'a_file/jobs.db' if 'TASKHARBOR_SUPERVISED' in os.environ else 'jobs.db'\n"
        "harbor = Harbor(f'sqlite:///{place}')\n\n@harbor.task\ndef nothing() -> None: ...\n"
    )
    ended = run_two("later_app", tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert "waiting does not help" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_application_that_cannot_be_used_by_the_children_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "half_app.py").write_text(
        "import os\nfrom taskharbor import Harbor\n"
        "if 'TASKHARBOR_SUPERVISED' not in os.environ:\n"
        "    harbor = Harbor('sqlite:///jobs.db')\n\n"
        "    @harbor.task\n    def nothing() -> None: ...\n"
    )
    began = time.monotonic()
    ended = run_two("half_app", tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert "usage error" in ended.stderr
    assert time.monotonic() - began < 30

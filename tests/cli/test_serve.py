"""`serve` and `token` as people run them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.waiting import until

from taskharbor.cli import main
from taskharbor.core.contract import Driver
from taskharbor.core.tokens import matches, read_secret

Run = Callable[..., Any]
Say = Callable[..., str]


def create(run: Run, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = run("token", "create", *words)
    return found


def test_a_token_is_shown_once_and_kept_as_a_hash(run: Run, driver: Driver) -> None:
    made = create(run, "--tenant", "acme", "--role", "producer", "--name", "shop", "--expires", "90d")
    (token,) = driver.tokens()
    assert (token.id, token.name, token.tenant_id, token.role) == (made["id"], "shop", "acme", "producer")
    known = read_secret(made["token"])
    assert known is not None
    assert matches(token, known[1], driver.now())
    assert made["token"].split("_", 2)[2] not in repr(token)
    listed = run("token", "list")
    assert listed == {"tokens": [{name: value for name, value in made.items() if name != "token"}]}
    assert listed["tokens"][0]["state"] == "good"


def test_people_get_the_token_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "create", "--tenant", "*", "--role", "admin"]) == 0
    said = capsys.readouterr()
    assert re.fullmatch(r"th_[0-9a-f]{12}_[\w-]{43}\n", said.out)
    assert "all tenants" in said.err
    assert said.out.strip() not in said.err


def test_a_revoked_token_is_listed_as_such_and_an_unknown_one_is_an_error(run: Run, say: Say) -> None:
    made = create(run, "--tenant", "acme", "--role", "viewer")
    for _ in range(2):
        assert run("token", "revoke", made["id"]) == {"tokens": [{"id": made["id"], "revoked": True}]}
    assert run("token", "list")["tokens"][0]["state"] == "revoked"
    assert "is no token" in say("token", "revoke", "0123456789ab", code=1)


@pytest.mark.parametrize(
    "words",
    [
        ["--tenant", "acme"],
        ["--role", "viewer"],
        ["--tenant", "acme", "--role", "king"],
        ["--tenant", "*", "--role", "producer"],
        ["--tenant", "", "--role", "viewer"],
    ],
)
def test_a_token_that_makes_no_sense_is_wrong_usage(words: list[str]) -> None:
    assert main(["token", "create", *words]) == 2


def test_without_a_token_no_host_but_loopback_is_served(say: Say, driver: Driver) -> None:
    said = say("serve", "--host", "0.0.0.0", code=2)
    assert "taskharbor token create" in said
    assert said.count("\n") == 1


def test_stores_of_one_process_are_served_by_one(say: Say) -> None:
    assert "leave out --processes" in say("--url", "json:///store", "serve", "--processes", "2", code=2)


def test_a_port_that_is_taken_is_said_in_one_line(say: Say, driver: Driver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in ([], ["--processes", "2"]):
            said = say("serve", "--port", port, *words, code=2)
            assert "--port" in said
            assert said.count("\n") == 1


def test_a_missing_library_names_the_extra(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "uvicorn" else real(name, *more)
    )
    assert "pip install 'taskharbor[web]'" in say("serve", code=1)


def test_a_short_secret_is_refused(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKHARBOR_SECRET", "short")
    assert "TASKHARBOR_SECRET" in say("serve", code=2)


class Running:
    def __init__(self, process: subprocess.Popen[str], told: dict[str, Any]) -> None:
        self.process = process
        self.url: str = told["addresses"][0]
        self.told = told
        self.errors: list[str] = []


@contextmanager
def serving(*words: str) -> Iterator[Running]:
    """`taskharbor serve` in a process of its own, at a free port."""
    command = [sys.executable, "-m", "taskharbor", "--json", "serve", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("\n}"):
            line = process.stdout.readline()
            assert line, f"it ended: {process.stderr.read() if process.stderr else ''}"
            text += line
        running = Running(process, json.loads(text))
        reader = threading.Thread(target=lambda: running.errors.extend(process.stderr or ()))
        reader.start()
        try:
            yield running
        finally:
            process.kill() if process.poll() is None else None
            reader.join(10)


@pytest.mark.process
@pytest.mark.parametrize("words", [[], ["--processes", "2"]], ids=["one process", "two"])
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_streams_do_not_hold_it_up(
    driver: Driver, words: list[str], sign: signal.Signals
) -> None:
    with serving(*words) as server:
        assert server.told["open"] is True
        with httpx.Client(base_url=server.url, timeout=40) as client:
            assert client.post("/api/v1/jobs", json={"type": "a", "payload": "needle"}).status_code == 201
            assert client.get("/api/v1/jobs?text=needle").json()["jobs"][0]["type"] == "a"
            waiting = threading.Thread(target=wait_for_work, args=(client,))
            waiting.start()
            with client.stream("GET", "/api/v1/events") as stream:
                assert stream.status_code == 200
                next(stream.iter_raw())
                until(driver.workers, "the request that waits is there too")
                began = time.monotonic()
                server.process.send_signal(sign)
                assert server.process.wait(20) == 0
                assert time.monotonic() - began < 8
            waiting.join(20)
    said = "".join(server.errors)
    assert "everybody on this machine may do everything" in said
    assert "needle" not in said
    assert "Traceback" not in said, said


def wait_for_work(client: httpx.Client) -> None:
    try:
        answer = client.post("/api/v1/leases", json={"queues": ["none"], "wait": 30, "worker": "patient"})
    except httpx.TransportError:
        return  # on a busy machine it may come after the signal, to a closed door
    assert answer.json() == {"leases": []}


@pytest.mark.process
def test_two_processes_share_the_port_and_one_that_dies_is_replaced(run: Run, driver: Driver) -> None:
    token = create(run, "--tenant", "*", "--role", "admin")["token"]
    with serving("--processes", "2", "--log-level", "warning") as server:
        assert server.told["open"] is False
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{server.url}/api/v1/jobs", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/api/v1/jobs").status_code == 401
        children = [int(pid) for pid in _children(server.process.pid)]
        assert len(children) == 2
        assert all(
            b"TASKHARBOR_SECRET" not in _command(pid) and token.encode() not in _command(pid) for pid in children
        )
        os.kill(children[0], signal.SIGKILL)
        deadline = time.monotonic() + 30
        while len(found := _children(server.process.pid)) < 2 or str(children[0]) in found:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while True:  # the new one may still be starting, and the system may have dealt the connection to it
            try:
                assert httpx.get(f"{server.url}/api/v1/jobs", headers=headers, timeout=20).status_code == 200
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        server.process.terminate()
        assert server.process.wait(20) == 0


def _children(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
        return file.read().split()


def _command(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read()

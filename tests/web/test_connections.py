"""What comes over the wire before there is a request, or breaks off in the middle of one."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.web.serving import Served, served

from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver
from taskharbor.web import connections, shell

JOB = b'{"type":"a"}'


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with open_driver("memory://") as driver, served(driver, max_body=50_000, max_bulk=100_000) as running:
        yield running


@pytest.fixture(scope="module")
def head(server: Served) -> bytes:
    return b"Host: localhost\r\nAuthorization: Bearer " + server.secret().encode() + b"\r\n"


def say(server: Served, *parts: bytes) -> bytes:
    """Everything that the server answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
        try:
            for part in parts:
                wire.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough
        answer = b""
        try:
            while data := wire.recv(65_536):
                answer += data
        except ConnectionResetError:
            pass
        return answer


def problem(answer: bytes) -> tuple[int, str]:
    start, _, body = answer.partition(b"\r\n\r\n")
    lines = start.split(b"\r\n")
    assert b"content-type: application/problem+json" in lines, answer
    assert b"x-content-type-options: nosniff" in lines, answer
    told = json.loads(body)
    assert told["status"] == int(lines[0].split()[1])
    return told["status"], told["type"].removeprefix("/problems/")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nContent-Length: 5\r\n\r\n" + JOB,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n" + JOB,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_with_a_problem_document(server: Served, request_bytes: bytes) -> None:
    assert problem(say(server, request_bytes)) == (400, "malformed")


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: %d\r\n" % (n, n) for n in range(9_000)) + b"\r\n"],
        [b"GET / HTTP/1.1\r\nHost: x\r\nX: ", *[b"a" * 10_000] * 10],
    ],
)
def test_headers_are_bounded_before_they_are_whole(server: Served, parts: list[bytes]) -> None:
    assert problem(say(server, *parts)) == (431, "headers-too-large")


def test_a_client_that_never_ends_its_headers_is_not_waited_for(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.3)
    for start in (b"", b"GET /healthz HTTP/1.1\r\nHost:"):
        assert problem(say(server, start)) == (408, "timed-out")
    good = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    assert problem(say(server, good + b"GET /healthz HTTP/1.1\r\n").split(b'{"status":"ok"}')[1]) == (408, "timed-out")


def test_a_client_that_stops_in_its_body_is_not_waited_for(
    server: Served, head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "BODY_S", 0.3)
    monkeypatch.setattr(shell, "LOOK_S", 0.1)
    start = b"POST /api/v1/jobs HTTP/1.1\r\n" + head + b"Content-Type: application/json\r\n"
    assert problem(say(server, start + b"Content-Length: 100\r\n\r\n{")) == (408, "timed-out")
    assert problem(say(server, start + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")) == (408, "timed-out")


def test_a_slow_client_is_served_as_long_as_it_goes_on(
    server: Served, head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "BODY_S", 0.5)
    monkeypatch.setattr(shell, "LOOK_S", 0.05)
    start = b"POST /api/v1/jobs HTTP/1.1\r\n" + head + b"Content-Type: application/json\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
        wire.sendall(start + b"Content-Length: 12\r\n\r\n")
        for byte in JOB:
            wire.sendall(bytes([byte]))
            time.sleep(0.06)  # a slow client is what this is about: 0.7 s in all
        assert wire.recv(100).startswith(b"HTTP/1.1 201 ")


def test_a_body_over_the_limit_is_refused_however_it_is_sent(server: Served, head: bytes) -> None:
    for path, kind, most in (("jobs", "application/json", 50_000), ("jobs/bulk", "application/x-ndjson", 100_000)):
        start = f"POST /api/v1/{path} HTTP/1.1\r\nContent-Type: {kind}\r\nConnection: close\r\n".encode() + head
        whole = start + b"Content-Length: %d\r\n\r\n" % (most + 1)
        assert problem(say(server, whole)) == (413, "too-large")
        piece = b"2710\r\n" + b" " * 10_000 + b"\r\n"
        assert problem(say(server, start + b"Transfer-Encoding: chunked\r\n\r\n", *[piece] * 12)) == (413, "too-large")


def test_requests_that_are_sent_ahead_are_answered_in_their_order(server: Served, head: bytes) -> None:
    one = (
        b"POST /api/v1/jobs HTTP/1.1\r\n" + head + b"Content-Type: application/json\r\nContent-Length: 12\r\n\r\n" + JOB
    )
    last = b"GET /api/v1/nowhere HTTP/1.1\r\n" + head + b"Connection: close\r\n\r\n"
    before = server.driver.count()
    answers = say(server, one * 30 + last)
    statuses = [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [201] * 30 + [404]
    assert server.driver.count() == before + 30


def test_what_a_bulk_request_brought_before_it_broke_off_stays(driver: Driver) -> None:
    lines = b'{"type":"a"}\n' * 2_000
    with served(driver) as server:
        head = (
            b"Host: x\r\nAuthorization: Bearer "
            + server.secret().encode()
            + b"\r\nContent-Type: application/x-ndjson\r\n"
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
            wire.sendall(b"POST /api/v1/jobs/bulk HTTP/1.1\r\n" + head + b"Transfer-Encoding: chunked\r\n\r\n")
            wire.sendall(b"%x\r\n" % len(lines) + lines + b"\r\n")
            deadline = time.monotonic() + 20
            while driver.count() < 2_000:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            wire.sendall(b"10\r\n" + lines[:16] + b"\r\n")
        assert server.client().get("/api/v1/stats").status_code == 200
    assert driver.count() == 2_000


@pytest.mark.parametrize("header", [b"Host: [", b"Host: ][", b"Host: \xff", b"Host:", b'Cookie: \xff;;=;a="\\'])
def test_odd_headers_break_nothing(server: Served, head: bytes, header: bytes) -> None:
    token = head.split(b"\r\n")[1]
    for address in (b"GET /api/v1/jobs", b"PUT /api/v1/jobs", b"GET /", b"GET /login", b"GET /nowhere", b"POST /login"):
        lines = [address + b" HTTP/1.1", header, b"Accept: text/html", b"Connection: close", token, b"", b""]
        assert say(server, b"\r\n".join(lines)).split()[1][:1] in (b"2", b"3", b"4"), address


HUNG = """
import socket, threading
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.web import Settings, create_app
from taskharbor.web.serving import Server, run

class Hung(MemoryDriver):
    def queues(self):
        threading.Event().wait()

listening = socket.create_server(("127.0.0.1", 0))
settings = Settings("memory://", open=True)
print(listening.getsockname()[1], flush=True)
raise SystemExit(run(Server(create_app(settings, Hung())), listening))
"""


@pytest.mark.process
def test_the_second_signal_ends_a_server_whose_store_has_hung() -> None:
    with subprocess.Popen([sys.executable, "-c", HUNG], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
                wire.sendall(b"GET /api/v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n")
                with socket.create_connection(("127.0.0.1", port), timeout=20) as other:
                    other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert other.recv(100).startswith(b"HTTP/1.1 200 ")
                process.send_signal(signal.SIGTERM)
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(1)  # it waits for the request
                process.send_signal(signal.SIGTERM)
                assert process.wait(10) == 1
        finally:
            process.kill()

"""`taskharbor serve` on a port of its own, and the way into it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from bench.children import ROOT, ChildFailed
from taskharbor.core.contract import Driver
from taskharbor.core.tokens import Role, new_token

START_S = 60.0
STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    port: int
    secret: str | None
    """None: there is no token, and none is needed."""

    def head(self, method: str, path: str, more: str = "") -> bytes:
        """The head of a request, ready to be sent."""
        token = "" if self.secret is None else f"Authorization: Bearer {self.secret}\r\n"
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{token}{more}\r\n".encode()

    def get(self, path: str) -> bytes:
        headers = {} if self.secret is None else {"Authorization": f"Bearer {self.secret}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
            return body


@contextlib.contextmanager
def serving(driver: Driver, url: str, processes: int, tenant: str | None = "bench") -> Iterator[Running]:
    """A server with so many processes on this store. With a tenant, clients need the token of a producer of it."""
    secret = None
    if tenant is not None:
        token, secret = new_token("bench", tenant, Role.PRODUCER, driver.now())
        driver.add_token(token)
    command = [
        *(sys.executable, "-m", "taskharbor", "--json", "serve", "--port", "0"),
        *("--processes", str(processes), "--log-level", "warning"),
    ]
    environment = {**os.environ, "TASKHARBOR_URL": url}
    with tempfile.TemporaryFile("w+") as errors:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        watchdog = threading.Timer(START_S, server.kill)
        watchdog.start()
        try:
            assert server.stdout is not None
            told = server.stdout.readline() and _document(server.stdout)
            watchdog.cancel()
            if not told:
                errors.seek(0)
                raise ChildFailed(f"the server did not start:\n{errors.read()[-2_000:]}")
            running = Running(urlsplit(told["addresses"][0]).port or 0, secret)
            _all_up(running, processes)
            yield running
        finally:
            watchdog.cancel()
            server.terminate()
            try:
                server.wait(STOP_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            assert server.stdout is not None
            server.stdout.close()


def _document(stdout: Iterator[str]) -> dict[str, list[str]]:
    """The rest of the document that it prints, whose first line was read."""
    text = "{"
    for line in stdout:
        text += line
        if line.startswith("}"):
            break
    document: dict[str, list[str]] = json.loads(text)
    return document


def _all_up(running: Running, processes: int) -> None:
    """Until each process has most likely been asked once, and has answered."""
    for _ in range(20 * processes):
        with contextlib.suppress(urllib.error.URLError):
            running.get("/readyz")

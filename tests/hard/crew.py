"""Other processes for the hard tests: started together, let go at the same moment, and killed without mercy."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

STORES = [
    "json",
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.server),
    pytest.param("mysql", marks=pytest.mark.server),
]

PATIENCE_S = 60.0

PRELUDE = """
import random, sys
from taskharbor.core.model import NewJob, RetryUpdate, Settlement
from taskharbor.drivers import open_driver
url, number = sys.argv[1], int(sys.argv[2])
random.seed(sys.argv[3])
def say(*words): print(*words, flush=True)
say("ready")
sys.stdin.readline()
"""


def new_store(request: pytest.FixtureRequest, kind: str, directory: Path) -> str:
    """The URL of a store that does not exist yet."""
    if kind in ("json", "sqlite"):
        return f"{kind}:///{directory}/store"
    server = request.getfixturevalue({"postgresql": "postgres", "mysql": "mysql"}[kind])
    url: str = server.create_database()
    return url


class Child:
    """A Python process that runs PRELUDE and then `code`, once it is told to."""

    def __init__(self, code: str, url: str, number: int, seed: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, url, str(number), f"{seed}:{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stream().readline()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def _stream(self) -> Any:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def finish(self) -> list[str]:
        """Wait for its end, which must be a good one; the lines that it said."""
        out, err = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, err
        return out.splitlines()

    def kill_after(self, seconds: float) -> list[str]:
        """SIGKILL, `seconds` after the first line; the whole lines that it said until then."""
        self.go()
        lines = [self._stream().readline()]
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        out, err = self._process.communicate(timeout=PATIENCE_S)
        timer.cancel()
        assert self._process.returncode != 1, err
        return [line.rstrip("\n") for line in lines + out.splitlines(keepends=True) if line.endswith("\n")]

    def stop(self) -> None:
        if self.running:
            self._process.kill()
        self._process.communicate()


def together(count: int, code: str, url: str, seed: object) -> list[list[str]]:
    """Run `count` children at the same moment; what each of them said."""
    children = [Child(code, url, number, seed) for number in range(count)]
    try:
        for child in children:
            child.go()
        return [child.finish() for child in children]
    finally:
        for child in children:
            child.stop()

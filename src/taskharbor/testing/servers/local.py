"""A server process of our own: started on a free port, ended exactly, leaving nothing behind."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

from taskharbor.drivers.opening import redacted
from taskharbor.testing.servers.accounts import Account, make_directory
from taskharbor.testing.servers.errors import ServerUnavailable

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
PREPARE_TIMEOUT_S = 180.0
POLL_INTERVAL_S = 0.02
START_ATTEMPTS = 5

# Waits until our end of its standard input closes, which also happens when we are killed, and then does what we
# no longer can: end the server and remove its data.
_GUARD = """
cat >/dev/null
kill -s "$1" "$2" 2>/dev/null
tries=0
while kill -0 "$2" 2>/dev/null && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
kill -s KILL "$2" 2>/dev/null
rm -rf -- "$3"
"""


class LocalServer(ABC):
    """A context manager around one server. `url` is valid from start to end, across restarts.

    Only on 127.0.0.1, with a password of its own, with its data in a temporary directory.
    """

    controllable = True
    """Whether `stop`, `start`, `restart` and `kill` work: they do for servers that are ours."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    crash_signal: ClassVar[signal.Signals]

    def __init__(self, account: Account) -> None:
        self.account = account
        self.user = "harbor"
        self.password = secrets.token_hex(12)
        self.port = 0
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    # --- What a kind of server fills in ------------------------------------------------------------------

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of the server's first database."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make the data directory. Called once."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The command that runs the server in the foreground, on `self.port`."""

    @abstractmethod
    def _ready(self) -> bool:
        """Whether the server takes connections now."""

    # --- Life --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._directory = make_directory(self.name, self.account)
        try:
            self._prepare()
            # Between our asking for a free port and the server's taking it, another process may be quicker.
            self._launch_patiently(_free_port)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __str__(self) -> str:
        return f"{self.name} on {HOST}:{self.port}"

    def __repr__(self) -> str:
        if self._directory is None:
            return f"<{type(self).__name__}, not started: use it in a with statement>"
        return f"<{type(self).__name__} at {redacted(self.url)}, {'running' if self.running else 'stopped'}>"

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise ServerUnavailable(f"{self.name} was not started: use it in a with statement")
        return self._directory

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start again after `stop` or `kill`, with the same data at the same address."""
        if not self.running:
            # Somebody may be holding our port for a moment.
            self._launch_patiently(lambda: self.port)

    def stop(self) -> None:
        """End the server in good order. Stopping twice is fine."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(self.crash_signal)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove its data. Closing twice is fine."""
        try:
            self._end(self.stop_signal)
        finally:
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    # --- Helpers -----------------------------------------------------------------------------------------

    def _launch_patiently(self, choose_port: Callable[[], int]) -> None:
        for attempt in range(1, START_ATTEMPTS + 1):
            self.port = choose_port()
            try:
                self._launch()
                break
            except ServerUnavailable:
                if attempt == START_ATTEMPTS:
                    raise

    def _launch(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=self._environment(),
                # Ctrl-C in the terminal is for us; we then end the server ourselves.
                start_new_session=True,
                **self.account.popen_options(),  # type: ignore[call-overload]
            )
        self._watch(self._process)
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not self._ready():
                if self._process.poll() is not None:
                    raise ServerUnavailable(f"{self.name} ended while starting:\n{self._log_tail()}")
                if time.monotonic() > deadline:
                    raise ServerUnavailable(f"{self.name} is not ready after {START_TIMEOUT_S} s:\n{self._log_tail()}")
                time.sleep(POLL_INTERVAL_S)
        except BaseException:
            self._end(self.crash_signal)
            raise

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        arguments = [self.crash_signal.name.removeprefix("SIG"), str(process.pid), str(self.directory)]
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def _end(self, how: signal.Signals) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            # First, so that it never signals a process id that is no longer our server's.
            guard.kill()
            guard.wait()
            if guard.stdin is not None:
                guard.stdin.close()
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except BaseException:
            process.kill()
            process.wait()
            raise

    def _run(self, command: list[str]) -> None:
        """Run a command of the set-up as the server's account."""
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=self.directory,
                env=self._environment(),
                timeout=PREPARE_TIMEOUT_S,
                check=False,
                **self.account.popen_options(),  # type: ignore[call-overload]
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerUnavailable(f"cannot set up {self.name}: {error}") from error
        if done.returncode != 0:
            said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
            raise ServerUnavailable(f"cannot set up {self.name}: {command[0]} said\n{said[-2000:]}")

    def _write(self, file_name: str, text: str) -> Path:
        """A file that only the server's account can read."""
        path = self.directory / file_name
        path.touch(mode=0o600)
        path.write_text(text, "utf-8")
        if self.account.uid is not None and self.account.gid is not None:
            os.chown(path, self.account.uid, self.account.gid)
        return path

    def _environment(self) -> dict[str, str]:
        # Settings like PGPORT or PGDATA of the person at the keyboard must not reach the server.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "MYSQL", "MARIADB"))}
        return {**kept, "HOME": str(self.directory), "LC_ALL": "C"}

    def _log_tail(self) -> str:
        try:
            lines = (self.directory / "server.log").read_text("utf-8", "replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(lines[-15:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port

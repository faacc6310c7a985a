"""Who may write a lake: one run at a time, with a heartbeat, so that the lock of a dead one is taken over."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from taskharbor.pipeline.lake import Lake, LakeCorrupt, LakeError

HEARTBEAT_S: Final = 5.0
STALE_AFTER: Final = timedelta(seconds=60)


class LakeLocked(LakeError):
    """Somebody else writes this lake at the moment. Nothing was changed."""


class LakeLockLost(LakeError):
    """This run stood still for so long that another one took over. It stops before it commits anything more."""


class LakeLock:
    """Held by one run at a time. A holder on this machine whose process is gone, or one anywhere whose heartbeat is
    older than `stale_after`, is dead, and its lock is taken over."""

    def __init__(self, lake: Lake, *, stale_after: timedelta = STALE_AFTER, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._lake = lake
        self._stale_after = stale_after
        self._heartbeat_s = heartbeat_s
        self._token: Final = uuid.uuid4().hex
        self._since = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.taken_over_from: str | None = None

    def __enter__(self) -> Self:
        self._lake.exists()  # never leaves anything behind in a directory of something else
        with self._alone():
            held = self._read()
            if held and not self._is_dead(held):
                raise LakeLocked(
                    f"the lake {self._lake.root} is being written by process {held.get('pid')} on {held.get('host')} "
                    f"since {held.get('since')}: wait for it, or stop it"
                )
            self.taken_over_from = f"process {held.get('pid')} on {held.get('host')}" if held else None
            self._since = datetime.now(UTC).isoformat(timespec="seconds")
            self._write()
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat, name="taskharbor-lake-lock", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._alone():
            if self._read().get("token") == self._token:
                (self._lake.home / "lock").unlink(missing_ok=True)

    def check(self) -> None:
        """That the lock is still ours: asked before every commit."""
        held = self._read()
        if held.get("token") != self._token:
            raise LakeLockLost(
                f"another run took over the lake {self._lake.root}: this one stood still for too long, and stops"
            )

    def _beat(self) -> None:
        while not self._stop.wait(self._heartbeat_s):
            with self._alone():
                if self._read().get("token") != self._token:
                    return
                self._write()

    def _write(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._lake.write_json(
            "lock",
            {"token": self._token, "host": socket.gethostname(), "pid": os.getpid(), "since": self._since, "beat": now},
        )

    def _read(self) -> dict[str, Any]:
        try:
            return self._lake.read_json("lock")
        except LakeCorrupt:
            return {}

    def _is_dead(self, held: dict[str, Any]) -> bool:
        if held.get("host") == socket.gethostname() and not _is_running(held.get("pid")):
            return True
        try:
            beat = datetime.fromisoformat(str(held.get("beat")))
        except ValueError:
            return True
        return datetime.now(UTC) - beat > self._stale_after

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Between reading the lock and writing it, nobody else does either."""
        self._lake.home.mkdir(parents=True, exist_ok=True)
        with (self._lake.home / "lock.guard").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _is_running(pid: object) -> bool:
    if not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

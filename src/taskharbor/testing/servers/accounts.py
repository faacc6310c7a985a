"""Database servers refuse to run as root. When we are root, another account of the machine runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from taskharbor.testing.servers.errors import ServerUnavailable

CHECK_TIMEOUT_S = 30.0


class Account(NamedTuple):
    """Who runs a server. Both numbers are None when it is simply us."""

    uid: int | None
    gid: int | None

    def popen_options(self) -> dict[str, object]:
        """What `subprocess` needs to change into this account."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_run(self, command: list[str]) -> bool:
        """Whether the command can be executed by this account, and succeeds."""
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                timeout=CHECK_TIMEOUT_S,
                check=False,
                **self.popen_options(),  # type: ignore[call-overload]
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return bool(done.returncode == 0)


def unprivileged(preferred: Iterable[str]) -> Account:
    """Ourselves, or, when we are root, the first of the preferred accounts that exists."""
    if os.geteuid() != 0:
        return Account(None, None)
    import pwd

    for name in (*preferred, "nobody", "daemon"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid)
    raise ServerUnavailable("a database server does not run as root, and this machine has no other account to run it")


def make_directory(name: str, account: Account) -> Path:
    """A new directory that belongs to the account and that it can reach."""
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")):
        if not Path(parent).is_dir():
            continue
        directory = Path(tempfile.mkdtemp(prefix=f"taskharbor-{name}-", dir=parent))
        if account.uid is not None and account.gid is not None:
            os.chown(directory, account.uid, account.gid)
        # The way there may be closed to the account, for example below the home directory of root.
        if account.can_run(["test", "-w", str(directory)]):
            return directory
        shutil.rmtree(directory, ignore_errors=True)
    raise ServerUnavailable(f"no temporary directory in which {name} could keep its data: set TMPDIR to one")

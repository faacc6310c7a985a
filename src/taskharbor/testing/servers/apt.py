"""Install a server from the packages of a Debian-like system, where we are root."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALL_TIMEOUT_S = 600.0


def install(*packages: str) -> bool:
    """Whether the packages are installed now. Never asks a question; does nothing unless we are root."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return False
    lock = Path(tempfile.gettempdir()) / "taskharbor-apt.lock"
    with lock.open("w") as held:
        # Two test processes may find the server missing at the same moment.
        fcntl.flock(held, fcntl.LOCK_EX)
        wanted = [apt, "install", "--yes", "--no-install-recommends", *packages]
        return _run(wanted) or (_run([apt, "update"]) and _run(wanted))


def _run(command: list[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0

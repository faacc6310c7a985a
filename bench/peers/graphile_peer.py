"""graphile-worker, which runs on Node. It is installed beside the virtual environment's Python, when first wanted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg

from bench.children import latencies, nothing_left, started, together

SOURCE = Path(__file__).parent / "graphile"
HOME = Path(sys.prefix) / "bench-graphile"
INSTALL_S = 300.0


class GraphileWorker:
    name = "graphile-worker"
    settings = (
        "localQueue.size 500, completeJobBatchDelay and failJobBatchDelay 0, concurrentJobs 100; deletes its jobs"
    )

    def __init__(self) -> None:
        self._node = ""

    def missing(self) -> str | None:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            return f"no {'Node' if node is None else 'npm'} here: install Node.js 20 or newer with npm"
        if sys.prefix == sys.base_prefix:
            return "it is only installed into a virtual environment: run it as `make bench`"
        self._node = node
        return None if _installed() else _install(npm)

    def prepare(self, address: str) -> None:
        with started(self._command("migrate"), address, environment=_environment()):
            pass  # It is ready when the tables are there.

    def fill(self, address: str, count: int) -> float:
        return self._rate(address, "fill", str(count))

    def drain(self, address: str, processes: int) -> float:
        done = self._rate(address, "drain", processes=processes)
        with psycopg.connect(address) as connection:
            nothing_left(connection.execute("SELECT count(*) FROM graphile_worker._private_jobs").fetchone()[0])
        return done

    def latency(self, address: str, samples: int) -> list[float]:
        with psycopg.connect(address, autocommit=True) as connection:

            def enqueue(number: int) -> None:
                connection.execute(
                    "SELECT graphile_worker.add_job('bench', json_build_object('number', %s::int))", (number,)
                )

            return latencies(self._command("listen"), address, enqueue, samples, _environment())

    def _command(self, *words: str) -> list[str]:
        return [self._node, str(SOURCE / "worker.js"), *words]

    def _rate(self, address: str, *words: str, processes: int = 1) -> float:
        count, seconds = together(self._command(*words), address, processes, _environment())
        return count / seconds


def _environment() -> dict[str, str]:
    return {"NODE_PATH": str(HOME / "node_modules")}


def _installed() -> bool:
    wanted = json.loads((SOURCE / "package.json").read_text())["dependencies"]
    try:
        return all(
            json.loads((HOME / "node_modules" / name / "package.json").read_text())["version"] == version
            for name, version in wanted.items()
        )
    except OSError:
        return False


def _install(npm: str) -> str | None:
    """Install it, without a lock file; the reason in a line if that fails."""
    HOME.mkdir(exist_ok=True)
    shutil.copy(SOURCE / "package.json", HOME)
    command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"npm install did not work: {type(error).__name__}"
    if done.returncode or not _installed():
        last = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        return f"npm install did not work: {last}"
    return None

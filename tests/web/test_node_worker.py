"""The worker in plain JavaScript of `examples/`, run by the system's Node."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.web.serving import Served

from taskharbor.core.model import Job, NewJob, Status

EXAMPLE = Path(__file__).parents[2] / "examples" / "node-worker" / "worker.mjs"
pytestmark = pytest.mark.process


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if found is None:
        # With TASKHARBOR_REQUIRE_ALL=1 every skip is a failure.
        pytest.skip("node is not installed: Debian's package is nodejs")
    return found


@pytest.fixture
def worker(server: Served, node: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "TASKHARBOR_SERVER": server.url,
        "TASKHARBOR_TOKEN": server.secret("acme", "worker"),
    }
    with subprocess.Popen([node, str(EXAMPLE), "default", "slow"], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(server: Served, id: str, *, timeout_s: float = 30) -> Job:
    deadline = time.monotonic() + timeout_s
    while (job := server.driver.get(id)).status in (Status.READY, Status.INFLIGHT):
        assert time.monotonic() < deadline, f"the job is still {job.status}: {job.last_error}"
        time.sleep(0.02)
    return job


def enqueue(server: Served, type: str, payload: object, **options: object) -> str:
    job = NewJob(type, json.dumps(payload).encode(), tenant_id="acme", **options)  # type: ignore[arg-type]
    return server.driver.enqueue([job])[0].id


def test_a_worker_in_javascript_runs_jobs_to_every_kind_of_end(server: Served, worker: subprocess.Popen[bytes]) -> None:
    greet = enqueue(server, "greet", {"name": "Ada"})
    count = enqueue(server, "count", {"upto": 4})
    late = enqueue(server, "divide", {"from": 1, "by": -2})
    senseless = enqueue(server, "divide", {"by": "x"})
    doomed = enqueue(server, "divide", {"by": 0}, max_attempts=1)
    assert ended(server, greet).result == b'{"greeting":"Hello, Ada!"}'
    counted = ended(server, count)
    assert counted.result == b'{"sum":10}'
    assert counted.progress is not None
    assert counted.progress.done == 4
    snoozed = ended(server, late)
    assert (snoozed.result, snoozed.attempts, snoozed.forgiven) == (b"-0.5", 0, 1)
    assert (ended(server, senseless).dlq_code, server.driver.get(senseless).attempts) == ("unrecoverable", 1)
    dead = ended(server, doomed)
    assert dead.dlq_code == "max_attempts"
    assert "division by zero" in (dead.dlq_reason or "")
    assert "worker.mjs" in (dead.dlq_reason or "")
    owner = server.driver.attempts(greet)[0].worker
    assert owner == f"node-{worker.pid}"


SLEEPER = """
import { Worker } from EXAMPLE;
const worker = new Worker({
  server: process.env.TASKHARBOR_SERVER,
  token: process.env.TASKHARBOR_TOKEN,
  queues: ["default"],
  leaseFor: 0.6,
  handlers: {
    sleep: async (_, { signal }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      console.log(signal.reason.message);
    },
    deaf: () => new Promise(() => {}),
    quick: async () => "in time",
  },
});
process.once("SIGTERM", () => worker.stop());
await worker.run();
"""


def test_a_handler_over_the_timeout_of_its_job_is_told_to_stop_and_counts_as_failed(
    server: Served, node: str, tmp_path: Path
) -> None:
    script = tmp_path / "sleeper.mjs"
    script.write_text(SLEEPER.replace("EXAMPLE", json.dumps((EXAMPLE.parent / "taskharbor.mjs").as_uri())))
    environment = {
        **os.environ,
        "TASKHARBOR_SERVER": server.url,
        "TASKHARBOR_TOKEN": server.secret("acme", "worker"),
    }
    sleep = enqueue(server, "sleep", {}, timeout=0.4, max_attempts=1)
    deaf = enqueue(server, "deaf", {}, timeout=1, max_attempts=1)
    quick = enqueue(server, "quick", {}, timeout=10_000_000)
    with subprocess.Popen([node, str(script)], env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            for id, seconds in ((sleep, "0.4"), (deaf, "1")):
                dead = ended(server, id)
                assert (dead.dlq_code, dead.attempts, dead.deliveries) == ("max_attempts", 1, 1)
                assert f"timed out after {seconds} s" in (dead.dlq_reason or "")
            assert ended(server, quick).result == b'"in time"'
            process.send_signal(signal.SIGTERM)
            told, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, told) == (0, "timed out after 0.4 s\n")


def test_a_worker_in_javascript_ends_in_good_order_when_told(server: Served, worker: subprocess.Popen[bytes]) -> None:
    ended(server, enqueue(server, "greet", {"name": "Bob"}))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    left = enqueue(server, "greet", {"name": "Eve"})
    assert server.driver.get(left).status is Status.READY


def test_a_worker_in_javascript_without_a_good_token_says_so(server: Served, node: str) -> None:
    environment = {**os.environ, "TASKHARBOR_SERVER": server.url, "TASKHARBOR_TOKEN": "wrong"}
    done = subprocess.run(
        [node, str(EXAMPLE)], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "401" in done.stderr

"""`taskharbor move`, killed for real: the same command brings everything over, once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taskharbor.core.model import NewJob, Settlement
from taskharbor.drivers import open_driver
from taskharbor.testing.helpers import everything

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

JOBS = 12_000


def test_a_move_that_is_killed_again_and_again_brings_everything_over_once(tmp_path: Path, rng: random.Random) -> None:
    urls = f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db"
    source = open_driver(urls[0])
    source.migrate()
    source.enqueue([NewJob("work", b'{"n": %d}' % number) for number in range(JOBS)])
    for _ in range(4):
        leased = source.reserve("default", limit=1_000)
        source.settle([Settlement.ack(each.job.id, each.lease.token) for each in leased])
    before, facts = everything(source), source.history(limit=10_000).rows
    command = [sys.executable, "-m", "taskharbor", "--json", "move", *urls]
    kills = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TASKHARBOR_URL": ""})
        try:
            out, _ = process.communicate(timeout=rng.uniform(1.0, 2.0) if kills < 4 else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            time.sleep(0.01)
            continue
        assert process.returncode == 0
        break
    assert kills > 0
    report = json.loads(out)
    assert report["done_before"] or report["rows"]["history"] == len(facts)
    target = open_driver(urls[1])
    assert everything(target) == before
    found = target.history(limit=10_000).rows
    assert [(row.job_id, row.at, row.outcome) for row in found] == [(row.job_id, row.at, row.outcome) for row in facts]
    assert len(target.reserve("default", limit=1_000)) == 1_000
    source.close()
    target.close()

"""What Spark workers leave to read: lines that name their job, and errors that name their class."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.pipeline.work_task import Order, run_part

APPLICATION = """\
from taskharbor import Harbor
harbor = Harbor()

@harbor.task
def number(n: int) -> None: ...
"""


@pytest.mark.parametrize("format", ["text", "json"])
def test_lines_of_spark_workers_name_their_job_and_errors_their_class(
    sqlite_driver: Driver,
    sqlite_url: str,
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    format: str,
) -> None:
    with open(f"{tmp_path}/logged_{format}.py", "w") as file:  # noqa: PTH123
        file.write(APPLICATION)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TASKHARBOR_URL", sqlite_url)
    monkeypatch.setattr(logging.getLogger("taskharbor"), "propagate", False)  # the handlers of pytest are at the root
    [answer] = sqlite_driver.enqueue([NewJob("number", b'{"n": "one"}')])
    app = f"logged_{format}:harbor"
    order = Order("run", app, sqlite_url, ("default",), (1,), 30, 5, None, None, "warning", format)
    for _ in range(2):  # a process of Spark's runs several tasks, and says each thing once
        assert list(run_part(order, 0)) == []
    [line] = capsys.readouterr().err.splitlines()
    if format == "json":
        told = json.loads(line)
        assert (told["job"], told["worker"].startswith("run-")) == (answer.id, True)
    else:
        assert f"job={answer.id}" in line
        assert "worker=run-" in line
    reason = sqlite_driver.get(answer.id).dlq_reason
    assert reason is not None
    assert reason.startswith("InvalidArguments: number: argument 'n' must be int")
    sys.modules.pop(f"logged_{format}")

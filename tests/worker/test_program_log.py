"""Under `taskharbor worker` there is one log: of the worker, of the application and of its libraries."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import Start
from tests.worker.crew import finished

from taskharbor import Batch, Harbor
from taskharbor.core.model import NewJob
from taskharbor.worker.logs import WithJob

APPLICATION = """\
import asyncio
import logging

from taskharbor import Batch, Harbor

{setup}
harbor = Harbor("sqlite:///shop.db")
log = logging.getLogger("shop")
ours = logging.getLogger("taskharbor.shop")


def say() -> None:
    log.info("from the application")
    log.warning("of importance")
    ours.info("below our own logger")
    logging.warning("to the root")


@harbor.task
def plain() -> None:
    say()


@harbor.task
async def coroutine() -> None:
    await asyncio.create_task(aside())
    await asyncio.to_thread(say)


async def aside() -> None:
    logging.getLogger("shop.aside").info("from a task of the handler")


@harbor.task(pool="process")
def process() -> None:
    say()


@harbor.task(batch=10, batch_wait=0)
def many(batch: Batch) -> None:
    log.info("for %d", len(batch))
    for item in batch:
        item.done()


{more}
"""
SAID = {"from the application", "of importance", "below our own logger", "to the root"}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if search := os.environ.get("PYTHONPATH"):
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(p).absolute()) for p in search.split(os.pathsep)))
    for name in list(os.environ):
        if name.startswith("TASKHARBOR_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def written(*types: str, setup: str = "", more: str = "", words: tuple[str, ...] = ()) -> list[str]:
    """What a worker with one job of each type writes to its standard error."""
    Path("shop.py").write_text(APPLICATION.format(setup=setup, more=more))
    with Harbor("sqlite:///shop.db") as harbor:
        for each in types:
            harbor.driver.enqueue([NewJob(each, b"{}")])
    command = [sys.executable, "-m", "taskharbor", "-A", "shop:harbor", "worker", "--drain", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr.splitlines()


def as_json(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


@pytest.mark.process
@pytest.mark.parametrize("type", ["plain", "coroutine", "process"])
def test_lines_of_the_application_have_our_format_and_the_fields_of_their_job(type: str) -> None:
    lines = as_json(written(type, words=("--log-format", "json", "--name", "ada")))
    of_job = [line for line in lines if line["logger"] != "taskharbor.worker" and "job" in line]
    said = [line["message"] for line in of_job]
    assert set(said) - {"from a task of the handler"} == SAID
    assert len(said) == len(set(said)), "no line comes twice"
    assert ("from a task of the handler" in said) == (type == "coroutine")
    for line in of_job:
        assert (line["type"], line["queue"], line["tenant"], line["attempt"]) == (type, "default", "default", 1)
    assert {line["worker"] for line in lines} == {"ada"}


@pytest.mark.process
def test_as_text_a_line_of_the_application_has_its_time_its_logger_and_its_job() -> None:
    (line,) = [line for line in written("plain") if "of importance" in line]
    assert line[2] == ":"
    assert " WARNING of importance logger=shop job=" in line
    assert " type=plain queue=default tenant=default attempt=1 worker=" in line


@pytest.mark.process
@pytest.mark.parametrize("format", ["text", "json"])
def test_an_application_with_a_root_handler_keeps_it_for_its_own_lines(format: str) -> None:
    setup = 'logging.basicConfig(level="INFO", format="MINE %(message)s %(type)s", force=True)\n'
    setup += "logging.getLogger().handlers[0].setFormatter("
    setup += 'logging.Formatter("MINE %(message)s %(type)s", defaults={"type": "-"}))'
    lines = written("plain", "process", setup=setup, words=("--log-format", format))
    mine = [line for line in lines if line.startswith("MINE")]
    assert sorted(mine) == sorted(
        f"MINE {said} {type}" for said in SAID - {"below our own logger"} for type in ("plain", "process")
    )
    theirs = [line for line in lines if not line.startswith("MINE")]
    assert sum("worker started" in line for line in theirs) == 1
    assert sum("below our own logger" in line for line in theirs) == 2
    if format == "json":
        as_json(theirs)


@pytest.mark.process
def test_a_call_that_sets_up_the_root_logger_by_the_way_changes_nothing() -> None:
    early, bare, *lines = written(
        "plain",
        setup='logging.getLogger("shop").warning("early")\nlogging.warning("bare")',
        words=("--log-format", "json"),
    )
    assert json.loads(early)["message"] == "early"
    assert bare == "WARNING:root:bare", "which Python itself has written"
    assert {line["message"] for line in as_json(lines)} >= SAID


@pytest.mark.process
def test_as_json_the_warnings_of_python_are_lines_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    setup = 'import warnings\nwarnings.warn("early")'
    more = '@harbor.task\ndef warn() -> None:\n    warnings.warn("late")\n'
    lines = as_json(written("warn", setup=setup, more=more, words=("--log-format", "json")))
    said = [line for line in lines if line["logger"] == "py.warnings"]
    assert ["early" in said[0]["message"], "late" in said[1]["message"], len(said)] == [True, True, 2]
    assert said[1]["type"] == "warn"


@pytest.mark.process
def test_the_logging_of_an_application_by_dictConfig_does_not_silence_the_worker() -> None:
    setup = 'import logging.config\nimport taskharbor.worker.runtime\nlogging.config.dictConfig({"version": 1})'
    lines = as_json(written("plain", setup=setup, words=("--log-format", "json")))
    assert any(line["message"].startswith("worker started") for line in lines)


@pytest.mark.process
def test_libraries_are_heard_from_a_warning_on_unless_the_application_wants_more() -> None:
    Path("site-packages").mkdir()
    Path("site-packages/chatter.py").write_text(
        "import logging\n\ndef say(name):\n    log = logging.getLogger(name)\n"
        '    log.info("%s chats", name)\n    log.warning("%s warns", name)\n'
    )
    more = (
        "import sys\nsys.path.append('site-packages')\nimport chatter\nlogging.getLogger('wanted').setLevel('INFO')\n\n"
        "@harbor.task\ndef busy() -> None:\n"
        "    for name in ('chatter', 'wanted', 'shop'):\n        chatter.say(name)\n"
    )
    lines = as_json(written("busy", more=more, words=("--log-level", "debug", "--log-format", "json")))
    said = [line["message"] for line in lines if line["logger"] in ("chatter", "wanted", "shop")]
    assert said == ["chatter warns", "wanted chats", "wanted warns", "shop chats", "shop warns"]


@pytest.mark.process
def test_what_psycopg_says_of_a_connection_that_is_gone_is_left_to_our_own_word_about_the_outage() -> None:
    more = (
        "@harbor.task\ndef away() -> None:\n    log = logging.getLogger('psycopg')\n"
        "    log.warning('error ignored terminating %r: %s', '<psycopg.Pipeline [BAD]>', 'the connection is lost')\n"
        "    log.warning('unknown PostgreSQL timezone: %r; will use UTC', 'Mars')\n"
    )
    lines = as_json(written("away", more=more, words=("--log-format", "json")))
    said = [line["message"] for line in lines if line["logger"] == "psycopg"]
    assert said == ["unknown PostgreSQL timezone: 'Mars'; will use UTC"]


@pytest.mark.process
def test_a_logger_with_a_handler_of_its_own_on_the_console_is_not_shown_twice() -> None:
    setup = 'logging.getLogger("shop").addHandler(logging.StreamHandler())'
    lines = written("plain", setup=setup)
    assert [line for line in lines if "of importance" in line] == ["of importance"]
    assert sum("to the root" in line for line in lines) == 1


@pytest.mark.process
def test_the_lines_of_a_batch_carry_what_its_jobs_have_in_common() -> None:
    lines = as_json(written("many", "many", words=("--log-format", "json")))
    (line,) = [line for line in lines if line["message"] == "for 2"]
    assert (line["type"], line["queue"], line["tenant"]) == ("many", "default", "default")
    assert "job" not in line


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(WithJob())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield handler
    logger.removeHandler(handler)
    logger.setLevel("NOTSET")


def test_a_program_that_runs_a_worker_itself_can_have_the_job_on_its_lines(
    harbor: Harbor, start: Start, kept: Kept
) -> None:
    log = logging.getLogger("shop")

    @harbor.task
    def plain(number: int) -> None:
        log.info("plain %d", number, extra={"queue": "of another kind"})

    @harbor.task
    async def coroutine(number: int) -> None:
        log.info("coroutine %d", number)

    @harbor.task(batch=5)
    async def many(batch: Batch[Any]) -> None:
        log.info("a batch of %d", len(batch))
        batch.done()

    log.info("before")
    jobs = [task.using(tenant="acme").enqueue(number) for number in range(3) for task in (plain, coroutine)]
    jobs += [many.using(tenant=tenant).enqueue() for tenant in ("acme", "bond")]
    start()
    finished(harbor, *jobs)
    log.info("after")
    by_message = {record.getMessage(): record for record in kept.records}
    assert not any(hasattr(by_message[said], "job") for said in ("before", "after"))
    for job, said in zip(jobs, [f"{kind} {n}" for n in range(3) for kind in ("plain", "coroutine")], strict=False):
        fields = vars(by_message[said])
        assert (fields["job"], fields["tenant"], fields["attempt"]) == (job.id, "acme", 1)
    assert vars(by_message["plain 0"])["queue"] == "of another kind", "what a line says itself is left alone"

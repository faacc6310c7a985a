"""Log lines say which job they are about, and never what is in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest
from tests.worker.conftest import Start
from tests.worker.crew import finished

from taskharbor import Cancel, Context, Harbor, Retry, Snooze, Unrecoverable
from taskharbor.testing.helpers import new_job
from taskharbor.worker.logs import log_to

SECRET = "hunter2"


@pytest.fixture(params=["text", "json"])
def written(request: pytest.FixtureRequest) -> Iterator[tuple[str, io.StringIO]]:
    stream = io.StringIO()
    logger = logging.getLogger("taskharbor")
    level = logger.level
    handler = log_to(stream, level="DEBUG", format=request.param)
    yield request.param, stream
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_lines_about_a_job_name_it_and_never_quote_it(
    harbor: Harbor, start: Start, written: tuple[str, io.StringIO]
) -> None:
    form, stream = written

    class Strange(Exception):
        def __str__(self) -> str:
            return SECRET

    @harbor.task(max_attempts=2)
    def work(how: str, password: str, context: Context) -> object:
        match how:
            case "boom":
                raise ValueError(password)
            case "lines":
                raise ValueError(f"first line\n{password}\n{password}")
            case "note":
                error = KeyError(password)
                error.add_note(password)
                raise error
            case "strange":
                raise Strange
            case "chain":
                try:
                    raise OSError(password)
                except OSError as error:
                    raise RuntimeError(password) from error
            case "retry":
                raise Retry(0, password)
            case "dead":
                raise Unrecoverable(password)
            case "cancel":
                raise Cancel(password)
            case "snooze" if context.fence == 1:
                raise Snooze(0, password)
            case "result":
                return {password: object()}
            case "progress":
                context.progress(1, note=password)
        return password

    hows = ["fine", "boom", "lines", "note", "strange", "chain", "retry", "dead", "cancel", "snooze", "result"]
    jobs = [work.using(tenant="acme").enqueue(how, SECRET) for how in [*hows, "progress"]]
    bad = harbor.enqueue("work2", {"password": SECRET}, tenant="acme")

    @harbor.task(name="work2")
    def narrow(other: int) -> None: ...

    worker = start()
    finished(harbor, *jobs, bad)
    worker.stop()  # a line is written when the store has been told
    text = stream.getvalue()
    assert SECRET not in text
    lines = text.splitlines()
    about = [line for line in lines if jobs[1].id in line]
    assert about
    if form == "json":
        documents = [json.loads(line) for line in about]
        for document in documents:
            assert (document["job"], document["type"]) == (jobs[1].id, "work")
            assert (document["queue"], document["tenant"]) == ("default", "acme")
        said = [document["message"] for document in documents if document["level"] != "debug"]
        assert said == ["work failed (ValueError) and runs again in 0.0 s", "work failed for good (ValueError)"]
        assert [document["attempt"] for document in documents if document["level"] != "debug"] == [1, 2]
    else:
        assert all(f"job={jobs[1].id} type=work queue=default tenant=acme attempt=" in line for line in about)
    failures = [line for line in lines if "failed" in line and "worker stopped" not in line]
    assert failures
    assert all("tenant" in line and "attempt" in line for line in failures)


def test_a_failure_is_named_where_that_quotes_nothing(
    harbor: Harbor, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    @harbor.task(max_attempts=1, timeout=0.05)
    async def late() -> None:
        await asyncio.sleep(60)

    @harbor.task(max_attempts=2)
    def again() -> None:
        raise Retry(0, SECRET)

    worker = start()
    finished(harbor, late.enqueue(), again.enqueue())
    worker.stop()
    said = [message for message in caplog.messages if "failed" in message]
    assert sorted(said) == [
        "again failed (Retry) and runs again in 0.0 s",
        "again failed for good (Retry)",
        "late failed for good (timed out)",
    ]


def test_a_name_cannot_break_or_forge_a_line(harbor: Harbor, start: Start, written: tuple[str, io.StringIO]) -> None:
    _, stream = written
    forged = "x\n12:00:00.000 ERROR all is lost tenant=root"
    jobs = harbor.driver.enqueue([new_job(type=forged, tenant_id="a\nb c=d", max_attempts=1)])
    worker = start(take_all=True)
    finished(harbor, *jobs)
    worker.stop()
    lines = stream.getvalue().splitlines()
    assert any("all is lost" in line for line in lines)
    assert not any(line.startswith("12:00:00.000 ERROR") for line in lines)


def test_the_url_of_a_store_with_a_password_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    harbor = Harbor(f"postgresql://user:{SECRET}@127.0.0.1:1/nowhere")
    with caplog.at_level(logging.DEBUG), pytest.raises(Exception, match=r".") as raised:
        harbor.worker(take_all=True).start()
    harbor.close()
    assert SECRET not in caplog.text
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(harbor)

"""The command where its streams are not what most terminals have: another encoding, or closed by the shell."""

from __future__ import annotations

import shlex
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from tests.cli.test_output import on_terminal

from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver
from taskharbor.testing.emptying import connect
from taskharbor.testing.servers import PostgresServer

pytestmark = pytest.mark.process

QUEUE = "очередь"
ESCAPED = QUEUE.encode("ascii", "backslashreplace").decode()
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ENCODINGS = [
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONIOENCODING": "ascii:surrogateescape"},
    {"PYTHONIOENCODING": "cp437"},
    PLAIN,
]


@pytest.fixture
def queued(driver: Driver) -> Driver:
    driver.enqueue([NewJob("work", queue=QUEUE)])
    return driver


def in_shell(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a shell of its own, which may close streams."""
    command = f"{shlex.quote(sys.executable)} -m taskharbor {words}"
    setting = " ".join(f"{name}={value}" for name, value in environment.items())
    return subprocess.run(
        ["sh", "-c", f"{setting} {command}"], input="", capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("words", ["queues pause z", "jobs cancel x", "enqueue email.send {}"])
def test_what_postgres_refuses_is_one_line_on_standard_error(words: str, postgres: PostgresServer) -> None:
    url = postgres.create_database()
    with open_driver(url) as store:
        store.migrate()
    parts = urlsplit(url)
    role = f"r{parts.path[-20:]}"
    with connect(url) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    reader = parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}").geturl()
    found = in_shell(f"--url {reader} {words}")
    assert found.returncode == 1
    (said,) = found.stderr.splitlines()
    assert said.startswith("taskharbor: the database user may not do this: grant it ")


@pytest.mark.parametrize("environment", ENCODINGS, ids=lambda each: each.get("PYTHONIOENCODING", "C"))
@pytest.mark.parametrize("words", ["queues list", "stats", "jobs list"])
def test_what_the_encoding_lacks_is_shown_as_escapes(queued: Driver, words: str, environment: dict[str, str]) -> None:
    found = in_shell(words, **environment)
    assert (found.returncode, found.stderr) == (0, "")
    assert ESCAPED in found.stdout


def test_an_encoding_that_has_everything_shows_it(queued: Driver) -> None:
    assert QUEUE in in_shell("queues list", PYTHONIOENCODING="utf-8").stdout


def test_lines_that_the_encoding_lacks_are_drawn_with_others(queued: Driver) -> None:
    pytest.importorskip("rich")
    code, shown = on_terminal("queues", "list", PYTHONIOENCODING="latin-1")
    assert code == 0
    assert ESCAPED in shown
    assert "---" in shown
    assert r"\u25" not in shown


@pytest.mark.parametrize("words", ["stats", "--help", "--json jobs list", "queues list"])
def test_with_its_output_closed_the_command_is_silent(queued: Driver, words: str) -> None:
    found = in_shell(f"{words} >&-")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_with_both_outputs_closed_the_command_still_works(queued: Driver) -> None:
    assert in_shell("enqueue ok >&- 2>&- <&-").returncode == 0
    assert queued.counts()["ready"] == 2
    assert in_shell("jobs show nothing >&- 2>&-").returncode == 1


@pytest.mark.parametrize("words", ["enqueue ok -", "enqueue ok --many -"])
def test_a_closed_input_is_told_in_one_line(queued: Driver, words: str) -> None:
    found = in_shell(f"{words} <&-")
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "taskharbor: standard input is closed: there is nothing to read for -\n"
    assert queued.counts()["ready"] == 1


def test_with_its_input_closed_nobody_is_asked(queued: Driver) -> None:
    (leased,) = queued.reserve(QUEUE)
    queued.fail(leased.job.id, leased.lease.token, reason="no")
    found = in_shell("dlq purge --all <&-")
    assert found.returncode == 2
    assert found.stderr == "taskharbor: this removes 1 job for good: confirm with --yes, or look with --dry-run\n"

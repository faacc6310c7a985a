"""How quickly the package and its command are there."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

IMPORT_LIMIT_S = 0.060
HELP_LIMIT_S = 0.25
TRIES = 7
ROOMS = ("drivers", "app", "worker")

_MEASURE_IMPORT = "import time; t = time.perf_counter(); import taskharbor; print(time.perf_counter() - t)"


def run(*words: str) -> str:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout


def timed(*words: str) -> float:
    began = time.perf_counter()
    run(*words)
    return time.perf_counter() - began


def test_importing_the_package_takes_at_most_60_milliseconds() -> None:
    # The best of a few: a busy machine makes things slower, never quicker.
    assert min(float(run("-c", _MEASURE_IMPORT)) for _ in range(TRIES)) <= IMPORT_LIMIT_S


def test_the_help_is_there_within_a_quarter_of_a_second() -> None:
    assert min(timed("-m", "taskharbor", "--help") for _ in range(TRIES)) <= HELP_LIMIT_S


def test_the_jobs_of_a_sqlite_store_are_listed_within_a_quarter_of_a_second() -> None:
    run("-m", "taskharbor", "enqueue", "x")
    assert min(timed("-m", "taskharbor", "jobs", "list") for _ in range(TRIES)) <= HELP_LIMIT_S


def test_the_help_loads_no_driver_and_no_optional_library() -> None:
    script = "import sys; from taskharbor.cli import main; main(['--help']); print(*sorted(sys.modules))"
    loaded = run("-c", script).splitlines()[-1].split()
    roots = {name.partition(".")[0] for name in loaded}
    assert not roots & {"psycopg", "pymysql", "sqlalchemy", "pydantic", "rich", "sqlite3", "asyncio", "tomllib"}
    assert not [
        name for name in loaded if name.startswith(("taskharbor.drivers", "taskharbor.app", "taskharbor.worker"))
    ]


def test_importing_the_package_loads_no_optional_library_and_no_driver() -> None:
    loaded = run("-c", "import sys, taskharbor; print(*sorted(sys.modules))").split()
    roots = {name.partition(".")[0] for name in loaded}
    assert not roots & {"psycopg", "pymysql", "sqlalchemy", "pydantic", "pyspark", "fastapi", "sqlite3", "asyncio"}
    assert not [name for name in loaded if name.startswith("taskharbor.drivers")]


def test_the_module_is_the_command() -> None:
    assert run("-m", "taskharbor", "--version").startswith("taskharbor ")


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{sys.executable} -m taskharbor demo --url memory:// | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["demo", "--url", "memory://"], ["migrate", "--sql"]])
def test_output_that_cannot_be_written_is_an_error_of_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "taskharbor", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (
        1,
        "taskharbor: cannot write the output: No space left on device\n",
    )


@pytest.mark.parametrize("url", ["postgresql://u@h/d", "mysql://u@h/d"])
def test_the_sql_is_printed_without_any_client_library(url: str) -> None:
    hidden = "import sys; sys.modules.update(dict.fromkeys(['psycopg', 'psycopg_pool', 'pymysql']))"
    command = f"{hidden}; from taskharbor.cli import main; sys.exit(main(['--url', '{url}', 'migrate', '--sql']))"
    assert "th_jobs" in run("-c", command)

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
LIST_LIMIT_S = 0.35
TRIES = 20
ROOMS = ("drivers", "app", "worker")

_MEASURE_IMPORT = (
    "import time; t = time.process_time(); from taskharbor import Backoff, Job, TaskHarborError, Worker; "
    "print(time.process_time() - t)"
)


def run(*words: str) -> str:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout


def timed(*words: str) -> float:
    began = time.perf_counter()
    run(*words)
    return time.perf_counter() - began


def test_importing_the_package_takes_at_most_60_milliseconds() -> None:
    # The time of the processor, for it waits for nothing. One of a few: a busy machine makes that slower, too.
    assert any(float(run("-c", _MEASURE_IMPORT)) <= IMPORT_LIMIT_S for _ in range(TRIES))


def test_the_help_is_there_within_a_quarter_of_a_second() -> None:
    assert any(timed("-m", "taskharbor", "--help") <= HELP_LIMIT_S for _ in range(TRIES))


def test_the_jobs_of_a_sqlite_store_are_listed_within_a_third_of_a_second() -> None:
    run("-m", "taskharbor", "enqueue", "x")
    assert any(timed("-m", "taskharbor", "jobs", "list") <= LIST_LIMIT_S for _ in range(TRIES))


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


def test_the_command_begins_with_next_to_nothing() -> None:
    """Until `main` runs, an interrupt would show a traceback."""
    script = "import sys; before = set(sys.modules); from taskharbor.cli import main; print(*set(sys.modules) - before)"
    assert set(run("-c", script).split()) <= {"taskharbor", "taskharbor.cli", "__future__"}


INTERRUPTED_IN = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["taskharbor", "jobs", "list"]
from taskharbor.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module", ["taskharbor.cli.command", "argparse", "taskharbor.cli.worker", "taskharbor.cli.serve"]
)
def test_an_interrupt_while_the_command_loads_ends_it_without_a_word(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IN.format(module=module)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_of_a_verb_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IN.format(module="taskharbor.drivers.opening")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "taskharbor: interrupted\n")


def test_an_interrupt_that_is_to_be_ignored_is_ignored() -> None:
    """As `nohup` and shells do for what runs in the background."""
    script = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED_IN.format(module="argparse")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1, "it went on, and there is no store"
    assert "does not exist" in done.stderr


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

"""The tests' own rules: tiers, visible skips, failures in CI, and a seed to run the same again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
SAMPLE = """
import random
import pytest

def test_quick(): pass

@pytest.mark.slow
def test_slow(): pass

def test_on_a_server(postgres_url): pass

def test_with_chance(rng): print("drew", rng.random())
"""

# Every way in which a test says that it is not for here.
SKIPS = {
    "a module that lacks what it imports": """
import pytest
pytest.importorskip("no_such_library")
def test_nothing(): pass
""",
    "a module that skips itself": """
import pytest
pytest.skip("not for here", allow_module_level=True)
def test_nothing(): pass
""",
    "a module with a mark": """
import pytest
pytestmark = pytest.mark.skipif(True, reason="not for here")
def test_nothing(): pass
""",
    "a fixture": """
import pytest
@pytest.fixture(scope="module")
def lacking(): pytest.skip("not for here")
def test_nothing(lacking): pass
""",
    "a fixture that imports": """
import pytest
@pytest.fixture
def lacking(): return pytest.importorskip("no_such_library")
def test_nothing(lacking): pass
""",
    "a fixture that ends": """
import pytest
@pytest.fixture
def lacking():
    yield
    pytest.skip("not for here")
def test_nothing(lacking): pass
""",
    "a test": """
import pytest
def test_nothing(): pytest.skip("not for here")
""",
    "a test without cases": """
import pytest
@pytest.mark.parametrize("case", [])
def test_nothing(case): pass
""",
}


def run_sample(directory: Path, *words: str, text: str = SAMPLE, **environment: str) -> str:
    """Run the sample under our conftest, where no PostgreSQL can be had."""
    sample = directory / "test_sample.py"
    sample.write_text(text)
    (directory / "hide.py").write_text(
        "from taskharbor.testing.servers import postgres\n"
        "postgres._installed_here = postgres._inside_the_wheel = lambda: iter(())\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TASKHARBOR_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-p", "hide", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    path = os.pathsep.join([str(ROOT), str(directory), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "--rootdir", str(directory), "-p", "no:cacheprovider", "-s", *words, str(sample)],
        cwd=directory,
        env={**kept, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_missing_server_is_a_visible_skip_on_a_laptop(tmp_path: Path) -> None:
    said = run_sample(tmp_path)
    assert "3 passed, 1 skipped" in said
    assert "no PostgreSQL here: set TASKHARBOR_TEST_POSTGRES" in said


def test_a_missing_server_is_a_failure_in_ci(tmp_path: Path) -> None:
    said = run_sample(tmp_path, TASKHARBOR_REQUIRE_ALL="1")
    assert "3 passed, 1 error" in said
    assert "nothing may be skipped, but this was: Skipped: no PostgreSQL here" in said


def test_no_way_to_skip_passes_in_ci(tmp_path: Path) -> None:
    """All of them in one run, for what a run costs, and in a process of xdist, as in CI: each is a failure."""
    for number, text in enumerate(SKIPS.values()):
        (tmp_path / f"test_skip_{number}.py").write_text(text)
    words = ["--continue-on-collection-errors", "-n", "1", str(tmp_path)]
    said = run_sample(tmp_path, *words, TASKHARBOR_REQUIRE_ALL="1")
    for number, way in enumerate(SKIPS):
        assert f"test_skip_{number}.py" in said.partition("short test summary")[2], way
    (summary,) = (line for line in said.splitlines() if re.fullmatch("=+ .* in [0-9.]+s .*=+", line))
    assert " failed" in summary and " skipped" not in summary
    assert said.count("nothing may be skipped, but this was") >= len(SKIPS)


def test_a_module_that_skips_itself_fails_the_whole_run_in_ci(tmp_path: Path) -> None:
    text = SKIPS["a module that lacks what it imports"]
    assert "1 skipped" in run_sample(tmp_path, text=text)
    said = run_sample(tmp_path, text=text, TASKHARBOR_REQUIRE_ALL="1")
    assert "1 error" in said
    assert "nothing may be skipped, but this was: Skipped: could not import 'no_such_library'" in said


def test_the_unit_tier_leaves_out_what_is_slow_or_needs_a_server(tmp_path: Path) -> None:
    assert "2 passed, 2 deselected" in run_sample(tmp_path, "--fast")


def test_the_unit_tier_has_the_suite_on_memory_alone() -> None:
    command = [sys.executable, "-m", "pytest", "--fast", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "tests"], cwd=ROOT, capture_output=True, text=True, check=False)
    suites = {line.split("::")[0] for line in done.stdout.splitlines() if "::test_a_" in line and "::Test" in line}
    assert suites == {"tests/contract/test_memory.py"}
    assert "test_many_reservers" not in done.stdout, "what needs many threads is for the full run"
    assert "[memory" in done.stdout and not re.search(r"\[([a-z]+-)?(postgres|postgresql|mysql)[]-]", done.stdout)
    assert not re.search("^tests/(pipeline|worker|web|cli)/", done.stdout, re.MULTILINE)


def test_the_printed_seed_gives_the_same_chances_again(tmp_path: Path) -> None:
    said = [run_sample(tmp_path, "--fast", TASKHARBOR_TEST_SEED=seed) for seed in ("1", "1", "7")]
    drawn = [line for text in said for line in text.splitlines() if "drew" in line]
    assert drawn[0] == drawn[1] != drawn[2]
    assert "seed: 7 " in said[2]

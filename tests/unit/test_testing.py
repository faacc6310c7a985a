from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from taskharbor.testing import DriverContract

WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None
from taskharbor.core.errors import MissingExtra
from taskharbor.testing import MINUTE, NOON, FakeClock
assert FakeClock(NOON).advance(MINUTE) == NOON + MINUTE
try:
    from taskharbor.testing import DriverContract
except MissingExtra as error:
    assert "pip install" in str(error), error
else:
    raise SystemExit("the suite was imported without pytest")
"""


@pytest.mark.process
def test_without_pytest_the_suite_says_what_to_install_and_the_rest_works() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], check=True)


def test_no_two_themes_of_the_suite_share_a_test_name() -> None:
    # Of two methods with one name only the first would ever run.
    names = Counter(name for part in DriverContract.__mro__ for name in vars(part) if name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_theme_of_the_suite_is_marked_as_a_whole() -> None:
    # A mark on one theme would go over to every test of the class that inherits them all.
    assert [part.__name__ for part in DriverContract.__mro__ if "pytestmark" in vars(part)] == []

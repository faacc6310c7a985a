"""The README's code runs as it stands and prints what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from taskharbor.core.model import Status
from taskharbor.core.transitions import LEGAL

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)


def test_the_readme_has_an_example_and_every_example_has_its_output() -> None:
    assert EXAMPLES
    assert len(EXAMPLES) == README.count("```python\n")


@pytest.mark.process
@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_the_readmes_code_prints_what_the_readme_says_however_often_it_is_run(
    code: str, output: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == (output, "")


def test_the_readmes_picture_shows_the_moves_of_the_table_and_no_others() -> None:
    drawn = {(start, end) for start, end in re.findall(r"^ +(\w+) --> (\w+):", README, re.MULTILINE)}
    legal = {(start.value, end.value) for (start, _), ends in LEGAL.items() for end in ends if start is not end}
    assert drawn == legal
    assert {word for pair in drawn for word in pair} == {status.value for status in Status}


def test_every_target_that_the_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / document).read_text("utf-8"), re.MULTILINE))
        assert named <= targets, document

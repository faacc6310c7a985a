"""Every link inside the documents leads somewhere, and the code in them runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """The names that headings get as link targets: lower case, no punctuation, spaces as hyphens."""
    headings = _HEADING.findall(_FENCED.sub("", document.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_inside_the_documents_leads_somewhere(document: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCED.sub("", document.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


CODE = [
    pytest.param(textwrap.dedent(code), id=f"{document.name}-{number}")
    for document in sorted((ROOT / "docs").rglob("*.md"))
    for number, (_, code) in enumerate(_CODE.findall(document.read_text("utf-8")), 1)
]


@pytest.mark.process
@pytest.mark.parametrize("code", CODE)
def test_the_code_in_the_documents_runs_however_often(code: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")

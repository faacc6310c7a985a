"""What may import what, beyond what import-linter can say."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import taskharbor

HOME = Path(taskharbor.__file__).parent
CORE = sorted((HOME / "core").glob("*.py"))


def imported_by(module: Path) -> set[str]:
    """The top-level packages that a module imports anywhere in it, with our own in full."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    return {name if name.startswith("taskharbor") else name.partition(".")[0] for name in names}


@pytest.mark.parametrize("module", CORE, ids=lambda path: path.stem)
def test_the_core_imports_only_the_standard_library_and_itself(module: Path) -> None:
    foreign = {
        name
        for name in imported_by(module)
        if name not in sys.stdlib_module_names and not name.startswith("taskharbor.core")
    }
    assert not foreign


def test_only_the_pipeline_imports_spark() -> None:
    outside = [path for path in HOME.rglob("*.py") if "pipeline" not in path.relative_to(HOME).parts]
    assert not [path for path in outside if "pyspark" in imported_by(path)]


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    long = {str(path.relative_to(HOME)): count for path in HOME.rglob("*.py") if (count := _lines(path)) > 400}
    assert not long


def _lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())

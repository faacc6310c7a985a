from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskharbor import Harbor


@pytest.fixture
def without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment that does not have it: every import of it fails."""
    for name in ("pydantic", "pydantic.errors", "pydantic_core"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture(params=["with pydantic", "without pydantic"])
def either_way(request: pytest.FixtureRequest) -> None:
    """The test holds with pydantic and without it."""
    if request.param == "without pydantic":
        request.getfixturevalue("without_pydantic")


@pytest.fixture(params=["memory", "sqlite"])
def harbor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harbor]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    with Harbor(url) as made:
        yield made

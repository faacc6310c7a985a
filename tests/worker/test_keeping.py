"""Retention never outruns the lake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskharbor.core.errors import TaskHarborError
from taskharbor.drivers import open_driver
from taskharbor.testing.times import HOUR, NOON
from taskharbor.worker.keeping import MARK, archived_until, kept_by_lake


def mark(lake: Path, text: str) -> str:
    path = lake / MARK
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(lake)


def test_without_a_lake_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKHARBOR_LAKE", raising=False)
    assert kept_by_lake(open_driver("memory://")) is None


def test_a_lake_that_vouches_for_nothing_lets_nothing_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TASKHARBOR_LAKE", str(tmp_path))
    driver = open_driver("memory://")
    keep_from = kept_by_lake(driver)
    assert keep_from is not None
    assert keep_from() is None
    mark(tmp_path, json.dumps({"another store": NOON.isoformat()}))
    assert keep_from() is None
    mark(tmp_path, json.dumps({driver.history().cursor.split(":")[0]: NOON.isoformat()}))
    assert keep_from() == NOON


def test_a_lake_lets_go_what_ended_before_the_moment_it_vouches_for(tmp_path: Path) -> None:
    lake = mark(tmp_path, json.dumps({"a": NOON.isoformat(), "b": (NOON + HOUR).isoformat()}))
    assert archived_until(lake, ["cluster", "b", "17"]) == NOON + HOUR
    assert archived_until(lake, ["c"]) is None
    assert archived_until(f"file://{lake}", ["a"]) == NOON


def test_a_lake_out_of_reach_lets_nothing_go() -> None:
    assert archived_until("s3://bucket/lake", ["a"]) is None


@pytest.mark.parametrize("text", ["", "[]", '{"a": "yesterday"}'])
def test_a_torn_mark_is_an_error_and_lets_nothing_go(tmp_path: Path, text: str) -> None:
    with pytest.raises(TaskHarborError, match="nothing is pruned"):
        archived_until(mark(tmp_path, text), ["a"])

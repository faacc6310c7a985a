"""Retention never outruns the lake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskharbor.core.errors import TaskHarborError
from taskharbor.drivers import open_driver
from taskharbor.testing.times import HOUR, NOON
from taskharbor.worker.keeping import MARK, Vouched, archived_until, kept_by_lake


def mark(lake: Path, text: str) -> str:
    path = lake / MARK
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(lake)


def words(vouched: Vouched) -> dict[str, str]:
    return {"before": vouched.before.isoformat(), "upto": vouched.upto}


def test_without_a_lake_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKHARBOR_LAKE", raising=False)
    assert kept_by_lake(open_driver("memory://")) is None


def test_a_lake_that_vouches_for_nothing_lets_nothing_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TASKHARBOR_LAKE", str(tmp_path))
    driver = open_driver("memory://")
    vouched = kept_by_lake(driver)
    assert vouched is not None
    assert vouched() is None
    mark(tmp_path, json.dumps({"another store": words(Vouched(NOON, "another store:7"))}))
    assert vouched() is None
    ours = Vouched(NOON, driver.history().cursor)
    mark(tmp_path, json.dumps({ours.upto.split(":")[0]: words(ours)}))
    assert vouched() == ours


def test_a_mark_that_is_a_time_alone_vouches_for_nothing_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TASKHARBOR_LAKE", str(tmp_path))
    driver = open_driver("memory://")
    vouched = kept_by_lake(driver)
    assert vouched is not None
    mark(tmp_path, json.dumps({driver.history().cursor.split(":")[0]: NOON.isoformat()}))
    assert [vouched(), vouched()] == [None, None]
    assert caplog.text.count("names a time alone, so nothing is pruned") == 1


def test_a_lake_lets_go_what_it_vouches_for(tmp_path: Path) -> None:
    first, second = Vouched(NOON, "a:3"), Vouched(NOON + HOUR, "cluster:b:5:8")
    lake = mark(tmp_path, json.dumps({"a": words(first), "b": words(second)}))
    assert archived_until(lake, ["cluster", "b", "17"]) == second
    assert archived_until(lake, ["c"]) is None
    assert archived_until(f"file://{lake}", ["a"]) == first


def test_a_lake_out_of_reach_lets_nothing_go() -> None:
    assert archived_until("s3://bucket/lake", ["a"]) is None


@pytest.mark.parametrize("text", ["", "[]", '{"a": "yesterday"}', '{"a": {"before": "2031-05-01"}}', '{"a": 7}'])
def test_a_torn_mark_is_an_error_and_lets_nothing_go(tmp_path: Path, text: str) -> None:
    with pytest.raises(TaskHarborError, match="nothing is pruned"):
        archived_until(mark(tmp_path, text), ["a"])

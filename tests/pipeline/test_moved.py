"""A store that was moved, and the lake of the one before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskharbor.drivers import open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.moving import End, Move
from taskharbor.pipeline import bronze, runs
from taskharbor.pipeline.lake import Lake, LakeError


def test_a_lake_does_not_take_in_the_same_history_from_two_stores(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new", "another")]
    drivers = [open_driver(url) for url in urls]
    for driver in drivers:
        driver.migrate()
    old, new, another = (
        End(driver, url) for driver, url in zip(drivers, urls, strict=True) if isinstance(driver, BaseDriver)
    )
    move = Move(old, new)
    move.pace.settle_s = 0.0
    move.run()
    lake = Lake(tmp_path / "lake")
    lake.create()
    identity = old.driver.carrier().identity
    lake.write_json(bronze._plan_name(identity, 1), {"store_id": identity})
    with pytest.raises(LakeError, match="lake of its own"):
        runs._beside(lake, urls[1], new.driver.carrier().identity)
    assert runs._beside(lake, urls[2], another.driver.carrier().identity) == [identity]
    fresh = Lake(tmp_path / "fresh")
    fresh.create()
    assert runs._beside(fresh, urls[1], new.driver.carrier().identity) == []
    for driver in drivers:
        driver.close()

"""Stores with a past, each beside a lake that has all of it: made once in a run of the tests, and copied from then on,
for to make one takes seconds, and hundreds of tests begin with one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from taskharbor.core.contract import Driver
from taskharbor.drivers import open_driver
from taskharbor.pipeline import run


class Past(NamedTuple):
    driver: Driver
    url: str
    lake: Path


class Kept:
    """What was made, by how it was made."""

    def __init__(self, spark: Any, place: Path) -> None:
        self._spark = spark
        self._place = place
        self._made: dict[tuple[Any, ...], Path] = {}

    def copy(self, place: Path, lead: Callable[..., object], max_rows: int | None, words: dict[str, Any]) -> Past:
        """A store in `place` that `lead` has filled, and its lake."""
        key = (lead.__module__, lead.__qualname__, max_rows, *sorted(words.items()))
        if key not in self._made:
            self._made[key] = self._make(self._place / str(len(self._made)), lead, max_rows, words)
        shutil.copytree(self._made[key], place, dirs_exist_ok=True)
        url = _url(place)
        return Past(open_driver(url), url, place / "lake")

    def _make(self, place: Path, lead: Callable[..., object], max_rows: int | None, words: dict[str, Any]) -> Path:
        place.mkdir()
        driver = open_driver(_url(place))
        driver.migrate()
        lead(driver, **words)
        driver.close()
        run(_url(place), place / "lake", spark=self._spark, max_rows=max_rows)
        return place


def _url(place: Path) -> str:
    return f"sqlite:///{place / 'jobs.db'}"


Pasts = Callable[..., Past]
"""`past(live, rounds=2)`: a store on SQLite that `live(driver, rounds=2)` has filled, and the lake of a run over it.
With `max_rows`, of a run in batches of so many."""

"""The door by which jobs enter a store that did not begin there: as they stand, with their history.

Imported jobs come with their keys, and with places of their own in the feed. Restored ones were here before: each fact
goes back to the place that it had, so that nobody who has read that far gets it again; their keys stay free. A portion
enters in one transaction, and none into a store that a move has shut. What is there already, live or in history, is
passed over, so that both can be run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import HistoryRow, Job
from taskharbor.drivers.engine import EngineDriver
from taskharbor.drivers.rows import fact_params, live_params, payload_hash
from taskharbor.drivers.state import KeyRecord
from taskharbor.pipeline.imports.model import FINAL, Imported
from taskharbor.pipeline.restore_rows import Restored, fact_of, numbers_of


class Entered(NamedTuple):
    """Ids that were there, and ids of jobs whose key belonged to another job: those came in without."""

    known: set[str]
    without_key: set[str]


def open_door(driver: Driver) -> Door:
    if isinstance(driver, EngineDriver):
        return EngineDoor(driver)
    module = type(driver).__module__
    if module.startswith("taskharbor.drivers.postgres"):
        from taskharbor.pipeline.imports.door_sql import PostgresDoor

        return PostgresDoor(driver)
    if module.startswith("taskharbor.drivers.mysql"):
        from taskharbor.pipeline.imports.door_mysql import MysqlDoor

        return MysqlDoor(driver)
    if module.startswith("taskharbor.drivers.sqlite"):
        from taskharbor.pipeline.imports.door_sql import SqliteDoor

        return SqliteDoor(driver)
    raise InvalidInput(f"{type(driver).__name__} has no door for imports: import into one of the built-in stores")


class Door(ABC):
    @abstractmethod
    def enter(self, portion: Sequence[Imported]) -> Entered:
        """Keep the jobs that are new, each with its facts and its key, all of them or none."""

    @abstractmethod
    def restore(self, portion: Sequence[Restored]) -> set[str]:
        """Put back the finished jobs that are not there, all of them or none. Returns the ids that were there."""

    @abstractmethod
    def known(self, ids: Sequence[str]) -> set[str]:
        """Those that are there already."""


class EngineDoor(Door):
    """Into the in-process engine, which the JSON store runs on."""

    def __init__(self, driver: EngineDriver) -> None:
        self._driver = driver

    def known(self, ids: Sequence[str]) -> set[str]:
        with self._driver._reading() as state:
            return {id for id in ids if self._is_known(state, id)}

    @staticmethod
    def _is_known(state: Any, id: str) -> bool:
        return id in state.jobs or id in state.finished or id in state.sequences_of

    def enter(self, portion: Sequence[Imported]) -> Entered:
        known: set[str] = set()
        without: set[str] = set()
        with self._driver._told_where(), self._driver._changing() as state:
            for given in portion:
                item, job = given, given.job
                if self._is_known(state, job.id):
                    known.add(job.id)
                    continue
                if job.idempotency_key is not None:
                    place = (job.dedupe_scope, job.idempotency_key)
                    if place in state.keys:
                        without.add(job.id)
                        item = keyless(item)
                        job = item.job
                    else:
                        state.put("keys", place, KeyRecord(job.id, payload_hash(job), None))
                state.put("finished" if job.status in FINAL else "jobs", job.id, job)
                for fact in item.facts:
                    state.record(fact)
        return Entered(known, without)

    def restore(self, portion: Sequence[Restored]) -> set[str]:
        known: set[str] = set()
        with self._driver._told_where(), self._driver._changing() as state:
            for item in portion:
                if self._is_known(state, item.job_id):
                    known.add(item.job_id)
                    continue
                facts = [fact_of(record) for record in item.facts]
                state.put("finished", item.job_id, facts[-1].job)
                for record, fact in zip(item.facts, facts, strict=True):
                    state.put("history", numbers_of(record)[1], fact)
        return known


def keyless(item: Imported) -> Imported:
    """The job without its key, which another job has; the key is still to be read in its meta."""
    meta = {**item.job.meta, "imported.key": item.job.idempotency_key or ""}
    job = item.job._replace(idempotency_key=None, dedupe_scope=None, meta=meta)
    facts: list[HistoryRow] = [_with_job(fact, job) for fact in item.facts]
    return Imported(job, facts, item.unique)


def _with_job(fact: HistoryRow, job: Job) -> HistoryRow:
    if fact.job is None:
        return fact
    return replace(fact, job=fact.job._replace(idempotency_key=None, dedupe_scope=None, meta=job.meta))


__all__ = ["Door", "EngineDoor", "Entered", "fact_params", "keyless", "live_params", "open_door", "payload_hash"]

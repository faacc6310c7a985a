"""The doors of PostgreSQL and SQLite. The statements are beside those of the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from taskharbor.drivers.sqlite.records import in_micros
from taskharbor.pipeline.imports.door import Door, Entered, fact_params, keyless, live_params
from taskharbor.pipeline.imports.model import FINAL, Imported
from taskharbor.pipeline.restore_rows import Record, Restored, fact_columns


class PostgresDoor(Door):
    def __init__(self, driver: Any) -> None:
        self._driver, self._session = driver, driver._session

    def known(self, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in self._session.run("known_ids", {"ids": list(ids)})}

    def restore(self, portion: Sequence[Restored]) -> set[str]:
        def work(connection: Any) -> set[str]:
            ids = [item.job_id for item in portion]
            known = {row[0] for row in self._session.on(connection, "known_ids", {"ids": ids})}
            for record in new_facts(portion, known):
                self._session.on(connection, "restore_fact", fact_columns(record))
            return known

        with self._driver._told_where():
            known: set[str] = self._session.change(work)
        return known

    def enter(self, portion: Sequence[Imported]) -> Entered:
        def work(connection: Any) -> Entered:
            ids = [item.job.id for item in portion]
            known = {row[0] for row in self._session.on(connection, "known_ids", {"ids": ids})}
            without: set[str] = set()
            for given in portion:
                item = given
                if item.job.id in known:
                    continue
                params = live_params(item.job)
                if item.job.idempotency_key is not None and not self._session.on(connection, "take_key", params):
                    without.add(item.job.id)
                    item = keyless(item)
                    params = live_params(item.job)
                if item.job.status not in FINAL:
                    self._session.on(connection, "import_job", params)
                for fact in item.facts:
                    self._session.on(connection, "insert_fact", fact_params(fact))
            return Entered(known, without)

        with self._driver._told_where():
            entered: Entered = self._session.change(work)
        return entered


class SqliteDoor(Door):
    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def known(self, ids: Sequence[str]) -> set[str]:
        with self._driver._reading() as connection:
            return self._known(connection, ids)

    def _known(self, connection: Any, ids: Sequence[str]) -> set[str]:
        statement = self._driver._sql["known_ids"]
        return {id for id in ids if connection.execute(statement, {"id": id}).fetchone()}

    def restore(self, portion: Sequence[Restored]) -> set[str]:
        statement = self._driver._sql["restore_fact"]
        with self._driver._told_where(), self._driver._changing() as connection:
            known = self._known(connection, [item.job_id for item in portion])
            for record in new_facts(portion, known):
                connection.execute(statement, in_micros(fact_columns(record)))
        return known

    def enter(self, portion: Sequence[Imported]) -> Entered:
        sql = self._driver._sql
        without: set[str] = set()
        with self._driver._told_where(), self._driver._changing() as connection:
            known = self._known(connection, [item.job.id for item in portion])
            for given in portion:
                item = given
                if item.job.id in known:
                    continue
                params = in_micros(live_params(item.job))
                keyed = item.job.idempotency_key is not None
                if keyed and connection.execute(sql["take_key"], params).fetchone() is None:
                    without.add(item.job.id)
                    item = keyless(item)
                    params = in_micros(live_params(item.job))
                if item.job.status not in FINAL:
                    connection.execute(sql["import_job"], params)
                for fact in item.facts:
                    connection.execute(sql["insert_fact"], in_micros(fact_params(fact)))
        return Entered(known, without)


def new_facts(portion: Sequence[Restored], known: AbstractSet[str]) -> Iterator[Record]:
    return (record for item in portion if item.job_id not in known for record in item.facts)

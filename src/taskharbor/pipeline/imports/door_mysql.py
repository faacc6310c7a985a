"""The door of MySQL and MariaDB. Apart from the others, because it needs their client."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.core.ids import new_tokens
from taskharbor.drivers.mysql.values import list_literal, sql_time
from taskharbor.pipeline.imports.door import Door, Entered, fact_params, keyless, live_params
from taskharbor.pipeline.imports.door_sql import new_facts
from taskharbor.pipeline.imports.model import FINAL, Imported
from taskharbor.pipeline.restore_rows import Restored, fact_columns


class MysqlDoor(Door):
    def __init__(self, driver: Any) -> None:
        self._driver, self._store = driver, driver._store

    def known(self, ids: Sequence[str]) -> set[str]:
        found: set[str] = self._store.read(lambda session: self._known(session, ids))
        return found

    @staticmethod
    def _known(session: Any, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in session.rows("known_ids", ids=list_literal(ids))}

    def restore(self, portion: Sequence[Restored]) -> set[str]:
        def work(session: Any) -> set[str]:
            known = self._known(session, [item.job_id for item in portion])
            for record in new_facts(portion, known):
                session.run("import_fact", **_times(fact_columns(record)))
            return known

        with self._driver._told_where():
            known: set[str] = self._store.change(work)
        return known

    def enter(self, portion: Sequence[Imported]) -> Entered:
        def work(session: Any) -> Entered:
            known = self._known(session, [item.job.id for item in portion])
            without: set[str] = set()
            facts = []
            nonce = new_tokens(1)[0]
            for given in portion:
                item, job = given, given.job
                if job.id in known:
                    continue
                if job.idempotency_key is not None:
                    key = {"dedupe_scope": job.dedupe_scope, "idempotency_key": job.idempotency_key}
                    params = {**_times(live_params(job)), "taken_by": nonce, "taken_at": sql_time(job.created_at)}
                    params["expires_at"] = None
                    session.run("take_key", **params)
                    holder = session.rows("get_key", **key)[0]
                    if holder[0] != job.id:
                        without.add(job.id)
                        item = keyless(item)
                        job = item.job
                if job.status not in FINAL:
                    session.run("import_job", **_times(live_params(job)))
                facts += item.facts
            if facts:
                session.run("take_positions", count=len(facts))
                first = session.last_id - len(facts) + 1
                for seq, fact in enumerate(facts, first):
                    session.run("import_fact", seq=seq, **_times(fact_params(fact)))
            return Entered(known, without)

        with self._driver._told_where():
            entered: Entered = self._store.change(work)
        return entered


def _times(params: dict[str, Any]) -> dict[str, Any]:
    return {name: sql_time(value) if isinstance(value, datetime) else value for name, value in params.items()}

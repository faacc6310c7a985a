"""What every part of the driver stands on: transactions, statements, and the way a move is written down."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from taskharbor.core.errors import InvalidURL, JobNotFound, SchemaMissing, StoreReadOnly
from taskharbor.core.limits import Limits
from taskharbor.core.model import Attempt, Job, Status
from taskharbor.core.transitions import Moved
from taskharbor.drivers import rows
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.opening import DEFAULT_PREFIX, check_prefix
from taskharbor.drivers.sqlfiles import Statements
from taskharbor.drivers.sqlite import schema
from taskharbor.drivers.sqlite.connection import Connections, Settings
from taskharbor.drivers.sqlite.errors import translated
from taskharbor.drivers.sqlite.records import attempt_from_row, ended_from_row, in_micros, job_from_row

Connection = sqlite3.Connection

_LIVE: Final = frozenset({Status.READY, Status.INFLIGHT, Status.DLQ})


class SqliteStore(BaseDriver):
    """The file and its tables, below the operations."""

    def __init__(
        self,
        path: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        limits: Limits | None = None,
        options: dict[str, str] | None = None,
    ) -> None:
        super().__init__(limits=limits)
        schema.check_library()
        if path.startswith(":memory:"):
            raise InvalidURL("sqlite:///:memory: would be empty for every other connection: use memory:// instead")
        self._path = str(Path(path).absolute())
        self._prefix = check_prefix(prefix)
        self._settings = Settings.from_options(options or {})
        self._sql = Statements(schema.PACKAGE, prefix, "named")
        self._connections = Connections(
            self._path,
            self._settings,
            check=lambda connection: schema.check_version(connection, self._prefix, self._path),
            prepare=self._prepare_writer,
        )

    def _prepare_writer(self, connection: Connection) -> None:
        connection.execute(self._sql["create_ending"])

    def migrate(self) -> None:
        self._check_open()
        if self._settings.read_only:
            self._check_current()
            return
        with translated(self._path, creating=True), self._connections.alone("rwc") as connection:
            schema.migrate(connection, self._prefix, self._path, self._settings.busy_timeout_s)

    def _check_current(self) -> None:
        """All that `migrate` can do where nothing may be written."""
        try:
            with self._reading():
                pass
        except SchemaMissing:
            raise StoreReadOnly(
                f"{self._path} has no tables yet, or older ones, and mode=ro cannot write any: "
                "migrate with a URL without mode=ro"
            ) from None

    def _close(self) -> None:
        self._connections.close()

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._connections.writing()

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        """`_writing` for what is refused in a store that is shut. Whoever shuts it has to write too, so nobody can in
        between."""
        with self._connections.writing() as connection:
            self._refuse_shut(connection)
            yield connection

    def _refuse_shut(self, connection: Connection) -> None:
        if connection.execute(self._sql["is_shut"]).fetchone() is not None:
            raise FenceShut

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._connections.reading()

    # --- Single jobs, for what is too rare or too odd to be said in SQL ------------------------------------

    def _find(self, connection: Connection, id: str) -> Job:
        """The job, live or finished."""
        row = connection.execute(self._sql["get_job"], {"id": id}).fetchone()
        if row is not None:
            return job_from_row(row)
        row = connection.execute(self._sql["get_finished"], {"id": id}).fetchone()
        if row is None:
            raise JobNotFound(f"no job with the id {id!r}")
        return ended_from_row(row)

    def _last_attempt(self, connection: Connection, id: str) -> Attempt | None:
        row = connection.execute(self._sql["last_attempt"], {"id": id}).fetchone()
        return None if row is None else attempt_from_row(row)

    def _apply(self, connection: Connection, moved: Moved) -> Job:
        """Write down what a move made of a live job."""
        job, fact = moved
        if fact is not None:
            connection.execute(self._sql["insert_fact"], in_micros(rows.fact_params(fact)))
        if job.status in _LIVE:
            self._save(connection, job)
        else:
            connection.execute(self._sql["delete_job"], {"id": job.id})
            if fact is None or fact.attempt is None:  # it was ready
                connection.execute(self._sql["leave_bench"], {"id": job.id})
        return job

    def _save(self, connection: Connection, job: Job) -> None:
        connection.execute(self._sql["save_job"], in_micros(rows.job_params(job)))

    def _jobs(self, connection: Connection, statement: str, params: dict[str, object]) -> Sequence[Job]:
        return [job_from_row(row) for row in connection.execute(self._sql[statement], params)]

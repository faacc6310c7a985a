"""Staging for stores that are files of this machine: Arrow files beside the store, published by the driver through
the contract.

All jobs of a load carry a key, so the portions can be published one after the other, and after a crash again: those
that are there are recognised. SQLite gets them in one transaction.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final, cast

from taskharbor.core.clock import to_micros, utc_now
from taskharbor.core.contract import Driver
from taskharbor.core.errors import AlreadyExpired, DuplicateJob, IdempotencyConflict, InvalidInput
from taskharbor.core.model import Enqueued, NewJob
from taskharbor.drivers.opening import open_driver, parse_url
from taskharbor.pipeline.sink_options import Plan
from taskharbor.pipeline.sink_rows import STAGED, Checked, new_job
from taskharbor.pipeline.sink_values import row_json
from taskharbor.pipeline.staging import KeepRejects, Published, Staging, expired, gone, new_attempt, run_number

if TYPE_CHECKING:
    from taskharbor.drivers.jsonfile import JsonDriver

PORTION: Final = 5_000


class FileStaging(Staging):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        parsed = parse_url(plan.url)
        if parsed.scheme not in ("sqlite", "json") and plan.staging is None:
            raise InvalidInput(
                f"{parsed.scheme}:// has no staging place of its own: give staging=DIRECTORY, one that the driver "
                "and all executors share"
            )
        self._scheme = parsed.scheme
        self._prefix = parsed.prefix
        self._path = Path(parsed.path[1:]).absolute()
        beside = self._path.with_name(f".{self._path.name}.staging")
        self._place = Path(plan.staging).absolute() if plan.staging else beside

    def _home(self, run_id: str) -> Path:
        return self._place / f"run-{run_number(run_id):016x}"

    @contextmanager
    def attempt(self, run_id: str) -> Iterator[_Attempt]:
        import pyarrow as pa

        home = self._home(run_id)
        home.mkdir(parents=True, exist_ok=True)
        attempt = _Attempt()
        target = home / f"{attempt.number:016x}.arrow"
        with pa.OSFile(str(target), "wb") as file, pa.ipc.new_file(file, _schema()) as writer:
            attempt.writer = writer
            yield attempt

    def publish(
        self, run_id: str, attempts: Sequence[int], accepted: int, rejected: int, keep: KeepRejects
    ) -> Published:
        with closing(open_driver(self.plan.url)) as driver:
            if self._scheme == "sqlite":
                done = self._in_one_transaction(driver, run_id, attempts, accepted, rejected, keep)
            elif self.plan.failfast or not (self.plan.rejects or self.plan.lake):
                # A row that is refused only now must leave nothing behind, so all of it is one operation of the
                # store, for which others have to wait; else they get their turn between the portions.
                with cast("JsonDriver", driver).together() as inside:
                    done = self._portions(inside, None, run_id, attempts, accepted, keep)
            else:
                done = self._portions(driver, None, run_id, attempts, accepted, keep)
        self.discard(run_id)
        return done

    def _in_one_transaction(
        self, driver: Driver, run_id: str, attempts: Sequence[int], accepted: int, rejected: int, keep: KeepRejects
    ) -> Published:
        driver.queues()  # the driver says what is wrong with the file, if anything is
        loads = f"{self._prefix}loads"
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                query = f"SELECT published, duplicates, rejected FROM {loads} WHERE run_id = ?"
                row = connection.execute(query, (run_id,)).fetchone()
                if row is not None:
                    connection.execute("ROLLBACK")
                    return Published(row[0], row[1], row[2], already=True)
                done = self._portions(driver, connection, run_id, attempts, accepted, keep)
                connection.execute(
                    f"INSERT INTO {loads} (run_id, rows_in, published, duplicates, rejected, published_at) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (run_id, accepted + rejected, *done[:3], to_micros(driver.now())),
                )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return done

    def _portions(
        self,
        driver: Driver,
        connection: sqlite3.Connection | None,
        run_id: str,
        attempts: Sequence[int],
        accepted: int,
        keep: KeepRejects,
    ) -> Published:
        published = duplicates = found = 0
        bad: list[tuple[str, str]] = []
        home = self._home(run_id)
        found = sum(_count(home / f"{number:016x}.arrow") for number in attempts)
        if found != accepted:
            raise gone(found, accepted)
        for rows in self._read(home, attempts):
            bad += [(bytes(row["payload"]).decode(), row["reject_reason"]) for row in rows if row["reject_reason"]]
            jobs = [new_job(row, self.plan) for row in rows if row["reject_reason"] is None]
            for answer in enqueue_each(driver, jobs, connection, bad):
                published += not answer.existed
                duplicates += answer.existed
        if bad:
            keep(bad)
        return Published(published, duplicates, len(bad))

    def _read(self, home: Path, attempts: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
        import pyarrow as pa

        for number in attempts:
            path = home / f"{number:016x}.arrow"
            if not path.exists():
                continue
            with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
                for index in range(reader.num_record_batches):
                    batch = reader.get_batch(index)
                    for first in range(0, batch.num_rows, PORTION):
                        yield batch.slice(first, PORTION).to_pylist()

    def discard(self, run_id: str) -> None:
        rmtree(self._home(run_id), ignore_errors=True)
        _remove_if_empty(self._place)

    def sweep(self, before: datetime) -> int:
        removed = 0
        limit = before.timestamp() - (utc_now().timestamp() - time.time())
        for home in self._place.glob("run-*"):
            files = list(home.glob("*.arrow"))
            if all(file.stat().st_mtime < limit for file in files) and home.stat().st_mtime < limit:
                removed += len(files)
                rmtree(home, ignore_errors=True)
        _remove_if_empty(self._place)
        return removed


def _remove_if_empty(place: Path) -> None:
    with suppress(OSError):  # somebody else has something on its way
        place.rmdir()


def enqueue_each(driver: Driver, jobs: list[NewJob], connection: Any, bad: list[tuple[str, str]]) -> Iterator[Enqueued]:
    """Enqueue what can be. A portion that is refused as a whole is cut in halves until the culprits stand alone."""
    if not jobs:
        return
    try:
        yield from driver.enqueue(jobs, connection=connection)
    except DuplicateJob:
        raise
    except (IdempotencyConflict, AlreadyExpired) as error:
        if len(jobs) == 1:
            job = jobs[0]
            shown = {"type": job.type, "key": job.idempotency_key, "payload": job.payload.decode("utf-8", "replace")}
            late = isinstance(error, AlreadyExpired)  # whose own words have the time in them, another at each try
            bad.append((row_json(shown), expired(job.expires_at) if late else f"{type(error).__name__}: {error}"))
            return
        middle = len(jobs) // 2
        yield from enqueue_each(driver, jobs[:middle], connection, bad)
        yield from enqueue_each(driver, jobs[middle:], connection, bad)


def _count(path: Path) -> int:
    import pyarrow as pa

    if not path.exists():
        return 0
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
            return int(table.column("reject_reason").null_count)
    except pa.ArrowInvalid:
        return 0


def _schema() -> Any:
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    kinds = {"priority": pa.int32(), "max_attempts": pa.int32(), "timeout_nanos": pa.int64(), "payload": pa.binary()}
    kinds |= {"run_at": moment, "expires_at": moment}
    names = (*STAGED, "reject_reason")
    return pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in names])


class _Attempt:
    def __init__(self) -> None:
        self.number = new_attempt()
        self.writer: Any = None

    def add(self, checked: Checked) -> None:
        if checked.rows:
            self._write(checked.columns, checked.rows)
        if checked.rejects:
            rows = [row.encode() for row, _ in checked.rejects]
            self._write({"payload": rows, "reject_reason": [reason for _, reason in checked.rejects]}, len(rows))

    def _write(self, columns: dict[str, Any], count: int) -> None:
        import pyarrow as pa

        arrays = []
        for field in _schema():
            values = columns.get(field.name)
            if values is None:
                arrays.append(pa.nulls(count, field.type))
            else:
                arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
        self.writer.write_batch(pa.record_batch(arrays, schema=_schema()))

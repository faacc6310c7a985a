"""Jobs into PostgreSQL: one statement for one job, COPY for many."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import Connection

from taskharbor.core.contract import Answers
from taskharbor.core.ids import new_ids
from taskharbor.core.intake import Admitted, Batch, admit, check_duplicate, id_taken, plain_shape
from taskharbor.core.limits import Limits
from taskharbor.core.model import Enqueued, NewJob, Status
from taskharbor.core.unique import Verdict
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.joining import FenceSteps, Joiner, Query, Steps, StoreMark, enqueue_steps, same_store
from taskharbor.drivers.postgres.copying import COLUMNS, HEADER, TRAILER, job_rows, plain_rows
from taskharbor.drivers.postgres.errors import translated_for_caller
from taskharbor.drivers.postgres.session import Row, Session
from taskharbor.drivers.rows import merge_answers
from taskharbor.drivers.sqlfiles import Statements

COPY_CHUNK: Final = 1_000
LOCK_TRIES: Final = 20
LISTENERS_KNOWN_FOR_S: Final = 1.0


class Enqueueing:
    """Writes admitted batches, through the pool or through the caller's connection."""

    def __init__(self, session: Session, prefix: str, plain: Statements, named: Statements) -> None:
        self._session = session
        self._channel = f"{prefix}jobs"
        self._copy = f"COPY {prefix}jobs ({COLUMNS}) FROM STDIN (FORMAT BINARY)".encode()
        self._joiner = Joiner(("psycopg",), ("postgresql",), plain, named)
        self._nobody_listens_until = 0.0
        self._mark = StoreMark(lambda: str(session.run("store_id", {})[0][0]))

    def enqueue(self, batch: Batch) -> Answers:
        if len(batch.fresh) == 1 and not batch.chosen_ids:
            return self._enqueue_one(batch)
        return self._session.in_transaction(lambda connection: self.enqueue_in(connection, batch))

    def somebody_listens(self) -> None:
        """A worker of this very driver has registered: whoever enqueues next is to wake it."""
        self._nobody_listens_until = 0.0

    def enqueue_plain(self, job: NewJob, now: datetime, limits: Limits) -> Answers | None:
        """One job with nothing to it but its payload, while nobody listens: the shortest way there is. None for any
        other, which must go through `enqueue`."""
        if time.monotonic() >= self._nobody_listens_until:
            return None
        shape = plain_shape(job, limits)
        if shape is None or shape.timeout_nanos:
            return None
        id = new_ids(1)[0]
        params = {"id": id, "payload": job.payload, "now": now, **shape._asdict()}
        if not self._session.count("enqueue_plain", params):
            raise FenceShut
        return [Enqueued(id)]

    def stream(self, jobs: Sequence[NewJob], now: datetime, limits: Limits) -> Answers:
        """Many plain jobs: while PostgreSQL takes in one block, the next is checked and written out. If one of them
        is refused the transaction ends there, and nothing of the call is kept."""

        def work(connection: Connection[Row]) -> Answers:
            answers: Answers = []
            queues: set[str] = set()
            with connection.cursor() as cursor, cursor.copy(self._copy) as copy:
                copy.write(HEADER)
                for start in range(0, len(jobs), COPY_CHUNK):
                    chunk = jobs[start : start + COPY_CHUNK]
                    shapes = [plain_shape(job, limits) for job in chunk]
                    if None in shapes:
                        batch = admit(chunk, now, limits)
                        copy.write(job_rows(batch.fresh))
                        answers += batch.answers
                    else:
                        ids = new_ids(len(chunk))
                        copy.write(plain_rows(chunk, shapes, ids, now))  # type: ignore[arg-type]
                        answers += [Enqueued(job_id) for job_id in ids]
                    queues.update(job.queue for job in chunk)
                copy.write(TRAILER)
            if self.notify(connection, queues):
                raise FenceShut
            return answers

        return self._session.in_transaction(work)

    def join(self, connection: Any, batch: Batch) -> Answers:
        self._mark.know()
        with translated_for_caller():
            self._joiner.run(connection, same_store(self._mark))
            return self._joiner.run(connection, self._steps(batch))

    async def ajoin(self, connection: Any, batch: Batch) -> Answers:
        self._mark.know()
        with translated_for_caller():
            await self._joiner.arun(connection, same_store(self._mark))
            return await self._joiner.arun(connection, self._steps(batch))

    def _steps(self, batch: Batch) -> Steps:
        """Enqueue in the caller's transaction. The hint goes out when it commits, like the jobs."""
        return enqueue_steps(batch, _params, _params, self._fence, id_check="id_is_known")

    def _fence(self, stored: Sequence[Admitted]) -> FenceSteps:
        """The hint, and whether the store is shut. A transaction that keeps to the snapshot of its beginning cannot
        see that: then a connection of our own looks, now that whoever shuts the store would wait for the caller."""
        queues = sorted({job.queue for job in stored})
        [(shut, fresh, _)] = yield Query("notify", {"channel": self._channel, "queues": queues})
        return bool(shut) if fresh else bool(self._session.run("is_shut", {}))

    def _enqueue_one(self, batch: Batch) -> Answers:
        job = batch.fresh[0]
        params = {**_params(job), "channel": self._channel}
        if job.idempotency_key is None:
            moment = time.monotonic()
            stored = self._session.run("enqueue_one", params)
            if not stored:
                raise FenceShut
            if not stored[0][0]:
                # Workers that start in the meantime look by themselves until the hints begin.
                self._nobody_listens_until = moment + LISTENERS_KNOWN_FOR_S
            return batch.answers
        if self._session.run("enqueue_keyed", params):
            return batch.answers
        if job.duplicates.while_in is not None:
            return self._session.in_transaction(lambda connection: self.enqueue_in(connection, batch))
        # The key is held. Its holder may be gone again by now, or nobody holds it and a move has shut the store: then
        # the longer way settles it.
        held = self._session.run("get_key", params)
        if not held:
            return self._session.in_transaction(lambda connection: self.enqueue_in(connection, batch))
        check_duplicate(job, *held[0])
        return merge_answers(batch, {job.id: held[0][0]})

    def enqueue_in(self, connection: Connection[Row], batch: Batch, *, fenced: bool = True) -> Answers:
        """Enqueue as a part of this transaction; `fenced`, unless the store is shut."""
        existing = self._take_keys(connection, batch)
        fresh = [job for job in batch.fresh if job.id not in existing]
        if not fresh:
            replaces = any(job.duplicates.replaces for job in batch.fresh)
            if fenced and replaces and self._session.on(connection, "is_shut", {}):
                raise FenceShut
            return merge_answers(batch, existing)
        try:
            with connection.cursor() as cursor, cursor.copy(self._copy) as copy:
                copy.write(HEADER)
                for start in range(0, len(fresh), COPY_CHUNK):
                    copy.write(job_rows(fresh[start : start + COPY_CHUNK]))
                copy.write(TRAILER)
        except psycopg.errors.UniqueViolation as error:
            raise id_taken(_id_in(error)) from None
        inserted = {job.id for job in fresh}
        chosen = [job_id for job_id in batch.chosen_ids if job_id in inserted]
        if chosen:
            finished = self._session.on(connection, "id_is_taken", {"ids": chosen})
            if finished:
                raise id_taken(finished[0][0])
        if self.notify(connection, {job.queue for job in fresh}) and fenced:
            raise FenceShut
        return merge_answers(batch, existing)

    def notify(self, connection: Connection[Row], queues: Iterable[str]) -> bool:
        """Wake the workers that wait for these queues. Only a hint: they look by themselves too. Returns whether the
        store is shut: to be asked when the jobs are written, because whoever shuts it later waits for that."""
        return bool(self._session.on(connection, "notify", {"channel": self._channel, "queues": list(queues)})[0][0])

    def _take_keys(self, connection: Connection[Row], batch: Batch) -> dict[str, str]:
        """Take the keys of the batch; for each that is held already, the id of its job."""
        keyed = [job for job in batch.fresh if job.idempotency_key is not None]
        if not keyed:
            return {}
        # Everybody takes keys in the same order, so that two batches cannot wait for each other in a circle.
        keyed.sort(key=lambda job: (job.dedupe_scope, job.idempotency_key))
        params = {
            "scopes": [job.dedupe_scope for job in keyed],
            "keys": [job.idempotency_key for job in keyed],
            "ids": [job.id for job in keyed],
            "hashes": [job.payload_hash for job in keyed],
            "expiries": [job.key_expires_at for job in keyed],
            "now": keyed[0].created_at,
        }
        taken = {row[0] for row in self._session.on(connection, "take_keys", params)}
        if len(taken) == len(keyed):
            return {}
        holders = {(scope, key): (holder, payload) for scope, key, holder, payload in self._holders(connection, params)}
        judged = [job for job in keyed if job.id not in taken and job.duplicates.while_in is not None]
        self._lock_holders(connection, {holders[place][0] for job in judged if (place := _place(job)) in holders})
        existing: dict[str, str] = {}
        for job in keyed:
            if job.id not in taken and job.duplicates.while_in is not None:
                verdict, kept_by = self._judge_holder(connection, job)
                if verdict is not Verdict.INSERT:
                    existing[job.id] = kept_by
            elif job.id not in taken:
                if _place(job) not in holders:
                    # Its holder was forgotten in between. Begin again, as after any other lost race.
                    raise psycopg.errors.SerializationFailure("the holder of a key went away")
                holder, payload_hash = holders[_place(job)]
                check_duplicate(job, holder, payload_hash)
                existing[job.id] = holder
        return existing

    def _lock_holders(self, connection: Connection[Row], ids: set[str]) -> None:
        """Lock the holders of several keys without ever waiting for one while others are held: who settles a batch
        has an order of its own, and both would wait for each other. Our keys are held, so their holders stay the same.
        """
        for _ in range(LOCK_TRIES if len(ids) > 1 else 0):
            with connection.transaction() as attempt:
                free = {row[0] for row in self._session.on(connection, "lock_holders", {"ids": list(ids)})}
                others = sorted(ids - free)
                busy = self._session.on(connection, "live_ids", {"ids": others}) if others else []
                if not busy:
                    return  # those that were not found have finished
                raise psycopg.Rollback(attempt)
            with connection.transaction() as attempt:
                self._session.on(connection, "lock_holder", {"id": min(row[0] for row in busy)})
                raise psycopg.Rollback(attempt)

    def _judge_holder(self, connection: Connection[Row], job: Admitted) -> tuple[Verdict, str]:
        """What becomes of a unique job whose key is held. The key and its holder stay as they are until this
        transaction ends: one that finishes at the same moment has either done so, or waits."""
        params = _params(job)
        held = self._session.on(connection, "lock_key", params)
        if not held:
            raise psycopg.errors.SerializationFailure("the holder of a key went away")
        holder, payload_hash = held[0]
        found = self._session.on(connection, "lock_holder", {"id": holder}) or self._session.on(
            connection, "finished_status", {"id": holder}
        )
        verdict = job.duplicates.verdict(Status(found[0][0]) if found else None)
        if verdict is Verdict.INSERT:
            self._session.on(connection, "move_key", params)
            return verdict, holder
        check_duplicate(job, holder, payload_hash)
        if verdict is Verdict.REPLACE:
            params = _params(job.in_place_of(holder))
            self._session.on(connection, "replace_job", {**params, "holder": holder})
            self._session.on(connection, "move_key", params)
        return verdict, holder

    def _holders(self, connection: Connection[Row], params: Mapping[str, Any]) -> list[Row]:
        return self._session.on(connection, "get_keys", params)


def _params(job: Admitted) -> dict[str, Any]:
    return job._asdict()


def _place(job: Admitted) -> tuple[str | None, str | None]:
    return job.dedupe_scope, job.idempotency_key


def _id_in(error: psycopg.Error) -> str:
    """The id in a message like `Key (id)=(abc) already exists.`"""
    found = re.search(r"\(id\)=\((.*)\)", error.diag.message_detail or "")
    return found.group(1) if found else "?"

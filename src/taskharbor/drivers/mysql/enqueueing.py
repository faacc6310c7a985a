"""Taking jobs in: in a transaction of our own, or in the caller's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from taskharbor.core.contract import Answers
from taskharbor.core.errors import StoreUnavailable
from taskharbor.core.ids import new_tokens
from taskharbor.core.intake import Admitted, Batch, check_duplicate, id_taken
from taskharbor.core.unique import Verdict
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.joining import TRIES, Query, Steps, drive, judge_holder
from taskharbor.drivers.mysql.rows import job_params
from taskharbor.drivers.mysql.store import Session
from taskharbor.drivers.mysql.values import items_text, optional_time, sql_time
from taskharbor.drivers.rows import merge_answers

_SAVEPOINT: Final = "taskharbor_enqueue"


def enqueue(session: Session, batch: Batch, *, fenced: bool = True) -> Answers:
    """Take the keys, then insert the jobs whose key was free. The caller wraps it in a transaction. `fenced`, unless
    the store is shut."""
    existing = _take_keys(session, _keyed(batch))
    new = [job for job in batch.fresh if job.id not in existing]
    if new:
        session.insert_jobs(new, fenced=fenced)
    elif fenced and any(job.duplicates.replaces for job in batch.fresh):
        session.refuse_shut()
    # After the insert, which waits for a live job of the same id: if that finishes meanwhile, it is found here.
    inserted = {job.id for job in new}
    chosen = [id for id in batch.chosen_ids if id in inserted]
    if taken := session.rows_by_id("id_is_taken", chosen):
        raise id_taken(taken[0][0])
    return merge_answers(batch, existing)


def enqueue_steps(batch: Batch, is_shut: Callable[[], bool]) -> Steps:
    """The same for a connection of the caller's. There is no RETURNING here, so a key is taken and then looked at.
    `is_shut` asks over a connection of our own, because the caller's may keep to the snapshot of its beginning: asked
    when the jobs are written, so that whoever shuts the store later waits for the caller."""
    nonce = new_tokens(1)[0]
    guarded = len(batch.fresh) > 1 or batch.fresh[0].idempotency_key is not None or bool(batch.chosen_ids)
    if guarded:
        # If the batch is refused, the caller may still go on and commit: then none of it may stay behind. Going back
        # at once fails where there is no transaction, before anything is written that nobody could undo.
        yield Query(f"SAVEPOINT {_SAVEPOINT}", raw=True)
        yield Query(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", raw=True)
    try:
        existing: dict[str, str] = {}
        for job in _keyed(batch):
            params = _key_params(job, nonce)
            for _ in range(TRIES):
                yield Query("take_key", params)
                if holder := (yield Query("get_key", params)):
                    break  # otherwise it was forgotten in between, and the key is free again
            else:
                raise StoreUnavailable(f"the idempotency key {job.idempotency_key!r} changes hands too fast: try again")
            holder_id, payload_hash, taken_by = holder[0]
            if taken_by != nonce:
                verdict = yield from judge_holder(job, holder_id, params, job_params)
                if verdict is not Verdict.INSERT:
                    check_duplicate(job, holder_id, payload_hash)
                    existing[job.id] = holder_id
        new = [job_params(job) for job in batch.fresh if job.id not in existing]
        if new:
            yield Query("insert_job", new if len(new) > 1 else new[0])
        inserted = {params["id"] for params in new}
        for id in batch.chosen_ids:
            if id in inserted and (yield Query("get_finished", {"id": id})):
                raise id_taken(id)
        writes = bool(new) or any(job.duplicates.replaces for job in batch.fresh)
        if writes and is_shut():
            if not guarded:
                yield Query("delete_job", {"id": batch.fresh[0].id})
            raise FenceShut
    except Exception:
        if guarded:
            # A deadlock has undone the caller's whole transaction, and the savepoint with it.
            with suppress(Exception):
                yield Query(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", raw=True)
                yield Query(f"RELEASE SAVEPOINT {_SAVEPOINT}", raw=True)
        raise
    if guarded:
        yield Query(f"RELEASE SAVEPOINT {_SAVEPOINT}", raw=True)
    return merge_answers(batch, existing)


def _keyed(batch: Batch) -> list[Admitted]:
    # Everybody takes keys in the same order, so that two batches cannot wait for each other in a circle.
    keyed = [job for job in batch.fresh if job.idempotency_key is not None]
    return sorted(keyed, key=lambda job: (job.dedupe_scope, job.idempotency_key))


def _take_keys(session: Session, jobs: Sequence[Admitted]) -> dict[str, str]:
    """For each job whose key was taken already: its id, and the id of the job that holds the key."""
    if not jobs:
        return {}
    nonce = new_tokens(1)[0]
    rows = [_key_params(job, nonce) for job in jobs]
    session.insert("take_key", rows)
    wanted = [{name: row[name] for name in ("id", "dedupe_scope", "idempotency_key")} for row in rows]
    holders = {row[0]: row[1:] for text in items_text(wanted) for row in session.rows("get_keys", items=text)}
    existing: dict[str, str] = {}
    for job, params in zip(jobs, rows, strict=True):
        holder_id, payload_hash, taken_by = holders[job.id]
        if taken_by != nonce:
            # `take_key` has locked the key.
            verdict = drive(judge_holder(job, holder_id, params, job_params), session.answer)
            if verdict is not Verdict.INSERT:
                check_duplicate(job, holder_id, payload_hash)
                existing[job.id] = holder_id
    return existing


def _key_params(job: Admitted, nonce: str) -> dict[str, Any]:
    return {
        "id": job.id,
        "dedupe_scope": job.dedupe_scope,
        "idempotency_key": job.idempotency_key,
        "payload_hash": job.payload_hash,
        "taken_at": sql_time(job.created_at),
        "taken_by": nonce,
        "expires_at": optional_time(job.key_expires_at),
    }

"""`jobs-json`: the JSON file of jobs and dead letters (seed 001)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from taskharbor.core import limits as bounds
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import DEFAULT_TENANT, Status
from taskharbor.pipeline.imports.model import (
    Imported,
    Notes,
    Row,
    Settings,
    Source,
    dead,
    json_bytes,
    last_fact,
    leased,
    make_job,
    required,
    status_of,
    utc,
    with_key,
)

DEFAULT_TYPE: Final = "job"
UNIQUE: Final = ("tenant", "type")
_STATUSES: Final = ("pending", "running", "done", "failed")
_TIMES: Final = ("created_at", "updated_at", "leased_at", "completed_at", "failed_at")
_FIELDS: Final = frozenset((
    "id", "status", "payload", "retries", "max_retries", "idempotency_key", "tenant_id", "created_at", "updated_at",
    "leased_at", "completed_at", "result", "error_message", "_letters", "_only_letter",
))  # fmt: skip
_LETTER_FIELDS: Final = frozenset(("id", "job_id", "payload", "retries", "last_error", "failed_at", "tenant_id"))
_STRANGER: Final = "_stranger"
"""Where an entry of the file that is no object stood."""
_SHOWN: Final = 60
_EXTRA: Final = "imported.field."
"""How the names of fields begin in meta that the source has and we do not know."""
_EXTRA_BYTES: Final = bounds.MAX_META_BYTES // 2


def open_source(source: str, options: dict[str, Any]) -> Source:
    jobs, letters, others = read(Path(source))
    by_job: dict[str, list[Row]] = {}
    for letter in letters:
        if _STRANGER not in letter:
            by_job.setdefault(str(letter.get("job_id") or letter.get("id")), []).append(letter)

    def rows() -> Iterator[Row]:
        known = set()
        for job in jobs:
            if _STRANGER in job:
                yield job
                continue
            known.add(str(job.get("id")))
            yield {**job, "_letters": by_job.get(str(job.get("id")), [])}
        for job_id, found in by_job.items():
            if job_id not in known:
                yield {"id": job_id, "status": "failed", "_letters": found, "_only_letter": True}
        yield from (letter for letter in letters if _STRANGER in letter)

    def leftovers(notes: Notes) -> None:
        for name in others:
            notes.add(f"{name[: bounds.MAX_NAME]!r} beside the jobs in the file: it is left there")

    return Source(rows, map_row, leftovers)


def read(path: Path) -> tuple[list[Row], list[Row], list[str]]:
    """The jobs, the dead letters, and the names of what else the file holds. A file with jobs alone may have `dlq.json`
    beside it."""
    if path.is_dir():
        path = path / "jobs.json"
    data = _parsed(path)
    beside = path.with_name("dlq.json")
    jobs, letters, others = data, None, []
    if isinstance(data, dict) and ("jobs" in data or "dlq" in data):
        jobs = data.get("jobs")
        dead_letters = next((name for name in ("dlq", "deadLetters") if data.get(name)), "dlq")
        letters = data.get(dead_letters)
        others = [name for name, value in data.items() if name not in ("jobs", dead_letters) and value]
    if letters is None and beside.exists() and beside != path:
        return _records(jobs, path), _records(_parsed(beside), beside), others
    return _records(jobs, path), _records(letters, path, "dlq"), others


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is no JSON: {error}") from None


def _records(data: Any, path: Path, what: str = "jobs") -> list[Row]:
    if data is None:
        return []
    if isinstance(data, dict):
        named = [(repr(id), {"id": id, **job} if isinstance(job, dict) else job) for id, job in data.items()]
    else:
        named = [(str(number), job) for number, job in enumerate(data, 1)] if isinstance(data, list) else []
    if not isinstance(data, dict | list) or (named and not any(isinstance(item, dict) for _, item in named)):
        raise InvalidInput(f'{path} holds no {what}: expected a list of jobs, or {{"jobs": […], "dlq": […]}}')
    return [item if isinstance(item, dict) else {"entry": item, _STRANGER: f"{what} {name}"} for name, item in named]


def map_row(row: Row, settings: Settings, notes: Notes) -> Imported:
    if _STRANGER in row:
        raise InvalidInput(f"{row[_STRANGER]} in the file is no object: {json.dumps(row['entry'])[:_SHOWN]}")
    letters = sorted(row["_letters"], key=lambda letter: str(letter.get("failed_at")))
    if row.get("_only_letter"):
        row = _from_letter(letters[-1], row, notes)
    if row.get("status") not in _STATUSES:
        raise InvalidInput(f"unknown status {row.get('status')!r}: the source knows {', '.join(_STATUSES)}")
    status = status_of(row["status"])
    created_at = required(row.get("created_at"), "created_at")
    leased_at = utc(row.get("leased_at"), "leased_at")
    updated_at = utc(row.get("updated_at"), "updated_at") or created_at
    retries = row.get("retries") or 0
    failed_at = updated_at if row.get("error_message") else None
    job = make_job(
        settings,
        id=row.get("id"),
        type=settings.type or DEFAULT_TYPE,
        queue=settings.queue or "default",
        tenant_id=row.get("tenant_id") or DEFAULT_TENANT,
        status=status,
        payload=json_bytes(row.get("payload")),
        meta=_extra(row, letters, notes),
        created_at=created_at,
        updated_at=updated_at,
        attempts=retries,
        max_attempts=row.get("max_retries") or 0,
        last_error=row.get("error_message") or "",
        failed_at=failed_at,
        result=None if row.get("result") is None else json_bytes(row["result"]),
    )
    job = with_key(job, row.get("idempotency_key"), UNIQUE)
    if settings.type is None:
        notes.add(f"type: the source has none; it is {DEFAULT_TYPE!r} unless --type says otherwise")
    _note_zones(letters if row.get("_only_letter") else [row, *letters], notes)
    facts = []
    told = 0
    if status is Status.INFLIGHT:
        job = leased(job, owner=None, claimed_at=leased_at or updated_at, until=None)
        job = job._replace(started_at=leased_at or updated_at)
        notes.add("the end of a lease: the source has only its beginning; it ends 30 s after that")
    elif status is Status.DONE:
        ended = utc(row.get("completed_at"), "completed_at") or updated_at
        job = job._replace(completed_at=ended, updated_at=ended, started_at=leased_at)
        facts.append(last_fact(job, ended, claimed_at=leased_at, started_at=leased_at))
    elif status is Status.DLQ:
        letter = letters[-1] if letters else {}
        ended = utc(letter.get("failed_at"), "failed_at") or utc(row.get("completed_at"), "completed_at") or updated_at
        job = dead(job, reason=letter.get("last_error") or job.last_error, failed_at=ended)
        facts.append(last_fact(job, ended, claimed_at=leased_at, started_at=leased_at))
        told = 1
        notes.add("id of a dead letter: a dead job is its own letter here", len(letters[-1:]))
        notes.add("earlier dead letters of the same job", len(letters[:-1]))
    if status is not Status.DLQ:
        notes.add("dead letters of a job that is alive again or done", len(letters))
    if status is not Status.DONE and row.get("result") is not None:
        notes.add("result of a job that is not done")
        job = job._replace(result=None)
    notes.add("failed attempts one by one: the source has only their number and the last error", max(0, retries - told))
    return Imported(job, facts, UNIQUE)


def _extra(row: Row, letters: list[Row], notes: Notes) -> dict[str, str]:
    """What the source has of a job beyond the fields that it is known for, as far as there is room for it."""
    meta: dict[str, str] = {}
    room = _EXTRA_BYTES
    for name, value in row.items():
        if name in _FIELDS or value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        size = len(json.dumps({_EXTRA + name: text}))  # in ASCII: at least what it takes as UTF-8
        if size <= room and len(_EXTRA + name) <= bounds.MAX_NAME and bounds.is_storable(name + text):
            room -= size
            meta[_EXTRA + name] = text
            notes.add(f"fields that are unknown here: kept in meta, as {_EXTRA}…")
        else:
            notes.add(f"the field {name[: bounds.MAX_NAME]!r}: unknown here, and meta cannot hold it")
    for letter in letters:
        notes.add("fields of a dead letter that are unknown here", len(letter.keys() - _LETTER_FIELDS))
    return meta


def _note_zones(rows: list[Row], notes: Notes) -> None:
    for row in rows:
        for name in _TIMES:
            value = row.get(name)
            if isinstance(value, str) and value and _is_naive(value):
                notes.add(f"{name} without a zone: taken for UTC")


def _is_naive(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is None
    except ValueError:  # one that nothing is made of
        return False


def _from_letter(letter: Row, row: Row, notes: Notes) -> Row:
    notes.add("created_at of a job that is only a dead letter: the time it died stands in")
    return {
        **row,
        "payload": letter.get("payload"),
        "retries": letter.get("retries"),
        "max_retries": letter.get("retries"),
        "error_message": letter.get("last_error"),
        "tenant_id": letter.get("tenant_id"),
        "created_at": letter.get("failed_at"),
        "updated_at": letter.get("failed_at"),
    }

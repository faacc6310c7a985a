"""From the rows of a batch to jobs that may be staged, and the refused ones with the reason.

Nearly all rows are right, so a batch is looked at by column; only the rows that stand out are looked at one by one,
by the very checks that `enqueue` makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from taskharbor.core import limits as bounds
from taskharbor.core.errors import InvalidInput, InvalidPayload, TaskHarborError
from taskharbor.core.ids import new_ids
from taskharbor.core.intake import Admitted, admit, dedupe_scope
from taskharbor.core.model import DEFAULT_QUEUE, DEFAULT_TENANT, NewJob
from taskharbor.pipeline.sink_options import FIELDS, Plan, TaskRules
from taskharbor.pipeline.sink_values import (
    are_json,
    arguments_payload,
    key_text,
    meta_value,
    moment_value,
    row_json,
    text_payload,
)

if TYPE_CHECKING:
    import pyarrow as pa

AUTO_KEY: Final = "row-"
"""How keys begin that stand for the content of a row."""


class Checked(NamedTuple):
    """A batch after its checks: columns of jobs by name (None: the plan's constant, or the default), and rejects."""

    columns: dict[str, Any]
    rows: int
    rejects: list[tuple[str, str]]
    """The row as JSON, and why it was refused."""


STAGED: Final = (
    "id", "type", "queue", "tenant_id", "priority", "run_at", "expires_at", "timeout_nanos", "max_attempts", "meta",
    "idempotency_key", "dedupe_scope", "payload",
)  # fmt: skip


def check_batch(batch: pa.RecordBatch, plan: Plan, identity: str, now: datetime) -> Checked:
    """The jobs of a batch and its rejects. `identity` and the content of a row make the key of one that has none."""
    if batch.num_rows == 0:
        return Checked({}, 0, [])
    if _is_plain(plan, batch):
        quick = _plain_batch(batch, plan, identity)
        if quick is not None:
            return quick
    return _row_by_row(batch, plan, identity, now)


def _is_plain(plan: Plan, batch: pa.RecordBatch) -> bool:
    import pyarrow as pa

    if plan.payload != "payload" or plan.columns or len(plan.key_columns) > 1 or plan.scope is None:
        return False
    kinds = [batch.schema.field(name).type for name in ("payload", *plan.key_columns)]
    return kinds[0] in (pa.string(), pa.binary()) and all(kind == pa.string() for kind in kinds[1:])


def _plain_batch(batch: pa.RecordBatch, plan: Plan, identity: str) -> Checked | None:
    """A batch that has only payloads, and keys, of its own: whole columns at a time. None if any row stands out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    payload = batch.column("payload")
    if payload.null_count or pc.max(pc.binary_length(payload)).as_py() > plan.limits.max_payload_bytes:
        return None
    texts = payload.to_pylist()
    if payload.type == pa.string():
        if not are_json(texts):
            return None
        payload = payload.cast(pa.binary())
        texts = payload.to_pylist()
    columns: dict[str, Any] = {"payload": payload}
    if plan.key_columns:
        keys = batch.column(plan.key_columns[0])
        lengths = pc.utf8_length(keys)
        bad = keys.null_count or pc.min(lengths).as_py() < 1 or pc.max(lengths).as_py() > bounds.MAX_KEY
        if bad or pc.any(pc.match_substring(keys, "\0")).as_py():
            return None
        columns["idempotency_key"] = keys
        columns["id"] = new_ids(batch.num_rows)
    else:
        columns["id"] = _content_ids(texts, plan, identity)
    return Checked(columns, batch.num_rows, [])


def _content_ids(payloads: Sequence[bytes], plan: Plan, identity: str) -> list[str]:
    start = _start(plan, identity).copy
    ids = []
    for payload in payloads:
        digest = start()
        digest.update(payload)
        ids.append(AUTO_KEY + digest.hexdigest())
    return ids


def _start(plan: Plan, identity: str) -> Any:
    """What all rows of a run share: the run, and what the options say. The rest of a row follows it."""
    return blake2b(repr((identity, sorted(plan.constants.items(), key=str))).encode(), digest_size=16)


def _row_by_row(batch: pa.RecordBatch, plan: Plan, identity: str, now: datetime) -> Checked:
    names = batch.schema.names
    lists = [column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns]
    start = _start(plan, identity)
    kept: list[Admitted] = []
    rejects: list[tuple[str, str]] = []
    for values in zip(*lists, strict=True):
        row = dict(zip(names, values, strict=True))
        try:
            kept.append(_admitted(row, plan, start, now))
        except (TaskHarborError, UnicodeError, TypeError, ValueError) as error:
            rejects.append((row_json(row), f"{type(error).__name__}: {error}"))
    columns: dict[str, Any] = {name: [getattr(job, name) for job in kept] for name in STAGED}
    if plan.scope is not None:
        columns["dedupe_scope"] = None
    if not plan.varies:
        for name in FIELDS:
            if name not in plan.columns:
                columns["timeout_nanos" if name == "timeout" else name] = None
    return Checked(columns, len(kept), rejects)


def _admitted(row: dict[str, Any], plan: Plan, start: Any, now: datetime) -> Admitted:
    type = (row["type"] or "") if "type" in plan.columns else plan.constants["type"]
    rules = plan.tasks.get(type)
    if plan.tasks and rules is None and type:
        raise InvalidInput(f"the application has no task {type!r}")
    fields = plan.fields(type)
    for name in plan.columns:
        value = row[name]
        if value is None:
            continue
        if name in ("run_at", "expires_at"):
            value = moment_value(value, name)
        fields[name] = meta_value(value) if name == "meta" else value
    if "type" not in fields:
        fields["type"] = ""  # refused by intake, in its own words
    payload = _payload(row, plan, rules)
    given = key_text(tuple(row[name] for name in plan.key_columns)) if plan.key_columns else None
    job = NewJob(payload=payload, idempotency_key=given, unique=plan.unique, **fields)
    [admitted] = admit([job], now, plan.limits).fresh
    if given is not None:
        return admitted
    digest = start.copy()
    if plan.columns:
        digest.update(repr([(name, _stable(fields.get(name))) for name in plan.columns]).encode())
    digest.update(payload)
    return admitted._replace(id=AUTO_KEY + digest.hexdigest())


def _stable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    return sorted(value.items()) if isinstance(value, dict) else value


def _payload(row: dict[str, Any], plan: Plan, rules: TaskRules | None) -> bytes:
    if plan.payload == "payload":
        value = row["payload"]
        if value is None:
            return b"{}"
        return text_payload(value) if isinstance(value, str) else bytes(value)
    values = row["args"] if plan.payload == "args" else {name: row[name] for name in plan.arguments}
    if rules is not None or plan.omit_nulls:
        values = _without_nulls(values or {}, plan, rules or TaskRules())
    return arguments_payload(values)


def _without_nulls(values: dict[str, Any], plan: Plan, rules: TaskRules) -> dict[str, Any]:
    """The arguments, less the nulls for which a default of the task counts, and what is key only."""
    for name in rules.needed:
        if values.get(name) is None:
            raise InvalidPayload(f"the argument {name!r} is null, and the task needs a value")
    return {
        name: value
        for name, value in values.items()
        if name not in rules.left_out and (value is not None or not (plan.omit_nulls or name in rules.optional))
    }


def new_job(staged: dict[str, Any], plan: Plan) -> NewJob:
    """A staged row as a job for `enqueue`, on stores that are published through the contract. A row without a key of
    its own gets its content's."""
    type = staged["type"] or plan.constants["type"]
    constants = plan.fields(type)
    nanos = staged["timeout_nanos"]
    return NewJob(
        type=type,
        payload=staged["payload"],
        queue=staged["queue"] or constants.get("queue", DEFAULT_QUEUE),
        tenant_id=staged["tenant_id"] or constants.get("tenant_id", DEFAULT_TENANT),
        meta=meta_value(staged["meta"]) or constants.get("meta"),
        priority=_or(staged["priority"], constants.get("priority", 0)),
        run_at=staged["run_at"] or constants.get("run_at"),
        expires_at=staged["expires_at"] or constants.get("expires_at"),
        timeout=nanos / 1e9 if nanos else constants.get("timeout"),
        max_attempts=_or(staged["max_attempts"], constants.get("max_attempts")),
        idempotency_key=staged["idempotency_key"] or staged["id"],
        unique=plan.unique,
    )


def _or(value: Any, other: Any) -> Any:
    return other if value is None else value


def defaults(plan: Plan, now: datetime) -> dict[str, Any]:
    """What stands for the columns that staging leaves empty: the options, checked, else what every job has."""
    fields = {"type": "t", **plan.fields()}
    expires_at = fields.pop("expires_at", None)
    [job] = admit([NewJob(**fields)], now, plan.limits).fresh
    values = {name: getattr(job, name) for name in ("type", "queue", "tenant_id", "priority", "timeout_nanos", "meta")}
    scope = plan.scope or dedupe_scope(job.tenant_id, job.queue, job.type, plan.unique)
    return {
        **values,
        "run_at": job.run_at,
        "expires_at": expires_at,
        "max_attempts": job.max_attempts,
        "dedupe_scope": scope,
        "now": now,
    }

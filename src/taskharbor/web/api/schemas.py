"""What clients send. Unknown fields are refused, and nothing is converted: "5" is no number."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from taskharbor.core import limits
from taskharbor.core.model import DEFAULT_QUEUE, Status

_NO_NUL: Final = r"^[^\u0000]*$"
_NOT_OURS: Final = r"^[^\u0000\u0001][^\u0000]*$"
"""Names that begin with U+0001 are the store's own."""
_LONGEST_S: Final = limits.MAX_DURATION.total_seconds()
MOST_LISTED: Final = 1_000
MOST_LEASED: Final = 1_000
MOST_REDRIVEN: Final = 100_000
LONGEST_WAIT_S: Final = 30.0


def _whole(value: object) -> object:
    """JSON knows one kind of number, and some languages write 5 as 5.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, StringConstraints(min_length=1, max_length=limits.MAX_NAME, pattern=_NO_NUL)]
Queue = Annotated[str, StringConstraints(min_length=1, max_length=limits.MAX_NAME, pattern=_NOT_OURS)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=limits.MAX_ID, pattern=_NO_NUL)]
Text = Annotated[str, StringConstraints(max_length=1_000, pattern=_NO_NUL)]
Plain = Annotated[str, StringConstraints(pattern=_NO_NUL)]
Meta = Annotated[
    dict[Plain, Plain],
    # Said here, because the description that is made of the types allows other names than these.
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": _NO_NUL},
            "additionalProperties": {"type": "string", "pattern": _NO_NUL},
        }
    ),
]
Seconds = Annotated[float, Field(ge=0, le=_LONGEST_S, allow_inf_nan=False)]
LeaseSeconds = Annotated[float, Field(ge=0.001, le=_LONGEST_S, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_whole)]
Attempts = Annotated[int, Field(ge=1, le=limits.MAX_ATTEMPTS), BeforeValidator(_whole)]
Cursor = Annotated[str, StringConstraints(max_length=200, pattern=r"^after:[^\u0000]+$")]
Time = Annotated[AwareDatetime, Field(description="With an offset, from 1970 to 8999.")]


_ONE_TIME: Final[dict[str, Any]] = {
    "not": {"required": ["run_at", "delay"], "properties": {"run_at": {"type": "string"}, "delay": {"type": "number"}}}
}
"""For the description: run_at or delay, not both."""


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class NewJob(Body):
    """A job to enqueue, for the tenant of the token."""

    model_config = ConfigDict(json_schema_extra=_ONE_TIME)

    type: Name
    payload: Any = Field(default_factory=dict, description="Any JSON value; tasks in Python take an object.")
    queue: Queue = DEFAULT_QUEUE
    priority: Whole = Field(
        0, ge=limits.PRIORITY_RANGE.start, lt=limits.PRIORITY_RANGE.stop, description="Higher first."
    )
    run_at: Time | None = None
    delay: Seconds | None = Field(None, description="Seconds from now; not together with run_at.")
    expires_at: Time | None = None
    timeout: Seconds | None = Field(None, description="Seconds that one attempt may take.")
    max_attempts: Attempts | None = None
    meta: Meta | None = None
    key: Name | None = Field(None, description="Idempotency key; the header Idempotency-Key says the same.")
    unique: list[Literal["tenant", "queue", "type"]] | None = Field(
        None, description="What, with the tenant, the key counts for; by default the type. Only with a key."
    )
    on_duplicate: Literal["return", "raise", "replace"] = Field(
        "return", description="What happens if the key is taken. Only with a key."
    )


class LeaseRequest(Body):
    """Ask for jobs to work on."""

    queues: list[Queue] = Field(min_length=1, max_length=100)
    limit: Whole = Field(1, ge=1, le=MOST_LEASED)
    lease_for: LeaseSeconds | None = Field(None, description="Seconds; 30 if not given.")
    types: list[Name] | None = Field(None, min_length=1, max_length=1_000)
    wait: float = Field(0.0, ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for a first job.")
    worker: Annotated[str, StringConstraints(max_length=limits.MAX_NAME, pattern=_NO_NUL)] = Field(
        "", description="The worker's name: the owner of its leases, and how it is listed among the workers."
    )


class _Settling(Body):
    token: Id


class Ack(_Settling):
    """The job is done."""

    result: Any = None


class Retry(_Settling):
    """The attempt failed. The job runs again by the usual backoff, or when told, while attempts are left."""

    model_config = ConfigDict(json_schema_extra=_ONE_TIME)

    error: str = ""
    delay: Seconds | None = None
    run_at: Time | None = None


class Fail(_Settling):
    """The job goes to the DLQ at once."""

    reason: str
    code: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=_NO_NUL)] = "unrecoverable"


class ProgressReport(Body):
    done: Number
    total: Number | None = None
    note: str = ""


class Extend(_Settling):
    """The worker goes on."""

    lease_for: LeaseSeconds | None = Field(None, description="Seconds from now; 30 if not given.")
    progress: ProgressReport | None = None


class Release(_Settling):
    """The job goes back as it was, and nothing is held against it; with a delay, it waits so long."""

    delay: Seconds | None = None


class RetryJob(Body):
    reset_attempts: bool = False


class Redrive(Body):
    """Which jobs of the DLQ to send back: all that match what is given."""

    ids: list[Id] | None = Field(None, min_length=1, max_length=MOST_LISTED)
    queue: Name | None = None
    type: Name | None = None
    tenant: Name | None = Field(None, description="For tokens of all tenants.")
    error: Text | None = Field(None, description="Text that the error contains.")
    code: Name | None = None
    limit: Whole = Field(10_000, ge=1, le=MOST_REDRIVEN, description="The oldest so many; ask again for more.")
    rate: float | None = Field(None, ge=0.001, le=1_000_000, allow_inf_nan=False, description="Jobs a second.")
    reset_attempts: bool = False


class DeadQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    queue: Name | None = None
    type: Name | None = None
    tenant: Name | None = Field(None, description="For tokens of all tenants.")
    text: Text | None = Field(None, description="Text in the id, type, error or payload.")
    error: Text | None = Field(None, description="Text in the error.")
    code: Name | None = None
    cursor: Cursor | None = None
    limit: int = Field(100, ge=1, le=MOST_LISTED)


class JobsQuery(DeadQuery):
    status: Status | None = None


class BulkQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    on_error: Literal["skip", "stop"] = Field("skip", description="What a bad line does to those behind it.")

"""What an application can learn of one job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from taskharbor.app.sealed import payload_of, result_of
from taskharbor.core.codec import Codec
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import Attempt, Enqueued, Job, Progress, Status

if TYPE_CHECKING:
    from taskharbor.app.encryption import Keyring

FINISHED = (Status.DONE, Status.DLQ, Status.EXPIRED, Status.CANCELLED)


class JobView:
    """A job as it was when it was looked up, with its payload and result decoded, and decrypted where they were
    encrypted. `record` is all the store has."""

    def __init__(self, record: Job, driver: Driver, codec: Codec, encryption: Keyring | None = None) -> None:
        self.record = record
        self._encryption = encryption
        self._driver = driver
        self._codec = codec
        self._seen_at = driver.now()

    # --- What it is ------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def type(self) -> str:
        return self.record.type

    @property
    def queue(self) -> str:
        return self.record.queue

    @property
    def tenant(self) -> str:
        return self.record.tenant_id

    @property
    def priority(self) -> int:
        return self.record.priority

    @property
    def key(self) -> str | None:
        return self.record.idempotency_key

    @property
    def meta(self) -> dict[str, str]:
        return dict(self.record.meta)

    @cached_property
    def arguments(self) -> Any:
        """What the payload holds: the arguments by name."""
        payload = payload_of(self.record, self._encryption)
        return self._codec.decode(payload) if payload else {}

    # --- Where it stands -------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return self.record.status

    @property
    def state(self) -> str:
        """scheduled, ready, claimed, running, done, dlq, expired or cancelled."""
        return self.record.phase(self._seen_at)

    @property
    def finished(self) -> bool:
        """Whether it will run no more, unless somebody redrives it."""
        return self.record.status in FINISHED

    @property
    def succeeded(self) -> bool:
        return self.record.status is Status.DONE

    @property
    def cancel_requested(self) -> bool:
        return self.record.cancel_requested_at is not None

    @property
    def progress(self) -> Progress | None:
        return self.record.progress

    @cached_property
    def result(self) -> Any:
        """What the handler returned; None as long as it has not."""
        result = result_of(self.record, self._encryption)
        return None if result is None else self._codec.decode(result)

    # --- What happened ---------------------------------------------------------------------------------------

    @cached_property
    def attempts(self) -> Sequence[Attempt]:
        """Every attempt, oldest first, each with its outcome and its error. Read when first asked for."""
        return tuple(self._driver.attempts(self.record.id))

    @property
    def failures(self) -> int:
        """How many of the attempts have failed: 0 for a job that was done at its first one."""
        return self.record.attempts

    @property
    def max_attempts(self) -> int:
        return self.record.max_attempts

    @property
    def error(self) -> str:
        """The last error, or why the job is in the DLQ; empty if nothing went wrong."""
        return self.record.dlq_reason or self.record.last_error

    @property
    def reason(self) -> str | None:
        """The code of why it is in the DLQ: max_attempts, unrecoverable, no_handler, bad_payload or crash_loop."""
        return self.record.dlq_code

    # --- When ------------------------------------------------------------------------------------------------

    @property
    def created_at(self) -> datetime:
        return self.record.created_at

    @property
    def due_at(self) -> datetime:
        return self.record.due_at

    @property
    def started_at(self) -> datetime | None:
        return self.record.started_at

    @property
    def completed_at(self) -> datetime | None:
        return self.record.completed_at

    @property
    def age(self) -> timedelta:
        """From its creation to its end, or to the moment of the look-up."""
        return max(timedelta(0), (self.record.completed_at or self._seen_at) - self.record.created_at)

    def refresh(self) -> JobView:
        """The same job as it is now."""
        return JobView(self._driver.get(self.record.id), self._driver, self._codec, self._encryption)

    def __repr__(self) -> str:
        failed = f", {self.failures} of {self.max_attempts} attempts failed" if self.failures else ""
        return f"<job {self.id}: {self.type} in {self.queue}, {self.state}{failed}>"


def id_of(job: str | Enqueued | JobView) -> str:
    """Whoever has the answer of an enqueue, or a job, may use it where an id is meant."""
    found = job if isinstance(job, str) else getattr(job, "id", None)
    if not isinstance(found, str):
        raise InvalidInput(f"a job is given by its id, or as the answer of an enqueue, got {type(job).__name__}")
    return found

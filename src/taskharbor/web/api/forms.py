"""What the API adds to the common form of jobs (`core.forms`): payloads, results, leases."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from math import isfinite
from typing import Any, Final

from taskharbor.core.envelope import is_sealed
from taskharbor.core.forms import attempt_data, iso, job_data, refuse_constant
from taskharbor.core.model import Attempt, Job, LeasedJob

MOST_ATTEMPTS: Final = 1_000
_DEEP: Final = 100
"""From so many brackets on, it is tried whether what was read can be written again."""


def stored(name: str, data: bytes | None) -> dict[str, Any]:
    """Stored bytes under their name if they are JSON, else in base64 beside it."""
    if data is None:
        return {name: None}
    if not is_sealed(data):
        try:
            return {name: _read(data)}
        except (ValueError, RecursionError):
            pass
    return {name: None, f"{name}_base64": base64.b64encode(data).decode("ascii")}


def _read(data: bytes) -> Any:
    value = json.loads(str(data, "utf-8"), parse_constant=refuse_constant, parse_float=_finite)
    if data.count(b"[") + data.count(b"{") > _DEEP:
        json.dumps([[value]])
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:20]} is more than a number can hold here")
    return number


def job_summary(job: Job, now: datetime) -> dict[str, Any]:
    """As in the body that enqueues one, the timeout is called `timeout` here."""
    data = job_data(job, now)
    data["timeout"] = data.pop("timeout_s")
    return data


def job_detail(job: Job, attempts: list[Attempt], now: datetime) -> dict[str, Any]:
    return (
        job_summary(job, now)
        | stored("payload", job.payload)
        | stored("result", job.result)
        | {"attempt_log": [attempt_data(attempt) for attempt in attempts[-MOST_ATTEMPTS:]]}
    )


def lease_data(leased: LeasedJob, now: datetime) -> dict[str, Any]:
    job, lease = leased
    return {
        "id": job.id,
        "token": lease.token,
        "expires_at": iso(lease.expires_at),
        "fence": job.deliveries,
        "job": job_summary(job, now) | stored("payload", job.payload),
    }

"""What the log says of the end of a job, when the store has been told."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from taskharbor.core.model import Settlement, Status
from taskharbor.core.outcome import Dead, Failed, Snoozed
from taskharbor.worker.held import Held
from taskharbor.worker.logs import job_fields

SEE: Final = "see `taskharbor jobs show`"
"""In place of an error's text, which may quote the payload: only the store keeps that."""

log = logging.getLogger("taskharbor.worker")


def say_end(held: Held, word: Settlement, status: Status, now: datetime) -> float | None:
    """Say how it ended, if that is worth a line. In how many seconds it is due again, if it was put off."""
    name, fields = held.job.type, job_fields(held.job)
    match held.ending:
        case _ if status is Status.CANCELLED:
            if held.heeded:
                log.info("%s was cancelled while it ran", name, extra=fields)
        case Failed(kind=kind) if status is Status.READY and word.update is not None:
            again = word.update.run_at
            wait_s = 0.0 if again is None else (again - now).total_seconds()
            log.warning("%s failed (%s) and runs again in %.1f s", name, kind or SEE, wait_s, extra=fields)
            return wait_s
        case Failed(kind=kind):
            log.error("%s failed for good (%s)", name, kind or SEE, extra=fields)
        case Dead():
            log.error("%s failed for good (%s)", name, word.code or SEE, extra=fields)
        case Snoozed(reason=reason) if word.run_at is not None:
            wait_s = (word.run_at - now).total_seconds()
            if reason:
                log.error("%s is put back for %.0f s: %s", name, wait_s, reason, extra=fields)
            return wait_s
        case _:
            pass
    return None

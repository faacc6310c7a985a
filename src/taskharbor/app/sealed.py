"""What an application reads of a job, encrypted or not. Costs next to nothing where nothing is encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskharbor.core.envelope import MAGIC, key_id_of

if TYPE_CHECKING:
    from taskharbor.app.encryption import Keyring
    from taskharbor.core.errors import EncryptionKeyMissing
    from taskharbor.core.model import Job


def payload_of(job: Job, ring: Keyring | None) -> bytes:
    """The payload in plain. EncryptionKeyMissing or DecryptionFailed if it cannot be had."""
    if ring is not None:
        return ring.open_payload(job)
    if job.payload.startswith(MAGIC):
        raise _no_ring(job.payload)
    return job.payload


def result_of(job: Job, ring: Keyring | None) -> bytes | None:
    if job.result is None:
        return None
    if ring is not None:
        return ring.open_result(job)
    if job.result.startswith(MAGIC):
        raise _no_ring(job.result)
    return job.result


def _no_ring(data: bytes) -> EncryptionKeyMissing:
    from taskharbor.app.encryption import missing_key

    return missing_key(key_id_of(data) or "?", "it has no key ring")

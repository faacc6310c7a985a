"""How an encrypted payload or result is laid out. Whoever reads it needs no key to see that it is one, and whose.

    magic 4 · version 1 · kind 1 · flags 1 · length of the key id 1 · key id · check 4 · salt 16 · [fingerprint 32] ·
    nonce 12 · ciphertext and tag

Everything before the ciphertext is the header, which is authenticated with it. The fingerprint is there for jobs with
an idempotency key: encrypted twice, the same payload gives different bytes, and this stays the same.
"""

from __future__ import annotations

import re
from enum import IntEnum
from hashlib import sha256
from typing import Final, NamedTuple

from taskharbor.core.errors import DecryptionFailed, EncryptionKeyMissing, InvalidInput

# No text in UTF-8 begins with this byte, so no JSON does.
MAGIC: Final = b"\xf5TH\x1a"
VERSION: Final = 1
CHECK_BYTES: Final = 4
SALT_BYTES: Final = 16
FINGERPRINT_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_FIXED: Final = len(MAGIC) + 4
_WITH_FINGERPRINT: Final = 1
_KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


class Kind(IntEnum):
    """What was encrypted. One never opens as another."""

    PAYLOAD = 1
    RESULT = 2
    SCHEDULE = 3
    """The payload of a schedule, which the jobs of all its ticks carry as it is."""


class Envelope(NamedTuple):
    kind: int
    key_id: str
    check: bytes
    """Tells the key from another one under the same id, and nothing else of it."""
    salt: bytes
    """What the key for this message and its neighbours was made with."""
    fingerprint: bytes | None
    nonce: bytes
    header: bytes
    sealed: bytes
    """Ciphertext and tag."""


def check_key_id(key_id: str) -> str:
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise InvalidInput(
            f"a key id has 1 to 32 letters, digits, dots, dashes and underscores and begins with a letter or digit, "
            f"such as '2026-11', got {key_id!r}"
        )
    return key_id


def is_sealed(data: bytes | None) -> bool:
    return data is not None and data.startswith(MAGIC)


def header(kind: Kind, key_id: str, check: bytes, salt: bytes, fingerprint: bytes | None, nonce: bytes) -> bytes:
    name = key_id.encode()
    flags = 0 if fingerprint is None else _WITH_FINGERPRINT
    return b"".join((MAGIC, bytes((VERSION, kind, flags, len(name))), name, check, salt, fingerprint or b"", nonce))


def parse(data: bytes) -> Envelope:
    """The parts of what `is_sealed`. DecryptionFailed if it is cut short or damaged; EncryptionKeyMissing if a later
    version wrote it, which is no reason to give it up."""
    if len(data) < _FIXED:
        raise damaged()
    version, kind, flags, length = data[len(MAGIC) : _FIXED]
    if version != VERSION:
        raise EncryptionKeyMissing(
            f"encrypted in the format {version}, and this TaskHarbor knows format {VERSION}: upgrade it"
        )
    at = _FIXED + length
    name = data[_FIXED:at].decode("ascii", "replace")
    if not _KEY_ID.fullmatch(name):
        raise damaged()
    check = data[at : at + CHECK_BYTES]
    at += CHECK_BYTES
    salt = data[at : at + SALT_BYTES]
    at += SALT_BYTES
    fingerprint = None
    if flags & _WITH_FINGERPRINT:
        fingerprint = data[at : at + FINGERPRINT_BYTES]
        at += FINGERPRINT_BYTES
    end = at + NONCE_BYTES
    if len(data) < end + TAG_BYTES:
        raise damaged()
    return Envelope(kind, name, check, salt, fingerprint, data[at:end], data[:end], data[end:])


def key_id_of(data: bytes | None) -> str | None:
    """The key that this was encrypted with; None if it is not encrypted, "?" if its header cannot be read."""
    if data is None or not data.startswith(MAGIC):
        return None
    try:
        return parse(data).key_id
    except (DecryptionFailed, EncryptionKeyMissing):
        return "?"


def payload_hash(payload: bytes) -> str:
    """What the payloads of two jobs with one idempotency key are compared by."""
    if payload.startswith(MAGIC):
        try:
            fingerprint = parse(payload).fingerprint
        except (DecryptionFailed, EncryptionKeyMissing):
            fingerprint = None  # bytes that only look like ours are compared like any other
        if fingerprint is not None:
            return fingerprint.hex()
    return sha256(payload).hexdigest()


def damaged() -> DecryptionFailed:
    return DecryptionFailed(
        "the encrypted bytes are damaged, or were changed or moved here from another job or tenant: they do not open "
        "with the key they name"
    )

"""Encryption of payloads and results: AES-256-GCM, with a ring of keys of which one is for what is written now.

A ciphertext is bound to tenant, type and id of its job: moved to another, it does not open. Every process seals with
keys of its own, made from the active one and a salt that stands beside the ciphertext, and makes a new one now and
then: so a key of the ring does not wear out by the number of messages. Why it is so: decision 13.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from taskharbor.app.unique import MADE_OF_ARGUMENTS
from taskharbor.core import envelope
from taskharbor.core.envelope import Kind
from taskharbor.core.errors import DecryptionFailed, EncryptionKeyMissing, InvalidInput, MissingExtra
from taskharbor.core.ids import new_id
from taskharbor.core.limits import MAX_ID, MAX_NAME, MAX_TENANT, check_name
from taskharbor.core.model import Job, NewJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = logging.getLogger("taskharbor.encryption")

KEY_BYTES: Final = 32
KEYS: Final = "TASKHARBOR_ENCRYPTION_KEYS"
"""In the environment: the path of a file of keys, for every Harbor that was given none."""
SCHEDULE: Final = "schedule"
"""Where the jobs of a schedule have its name in their meta."""
MOST_MESSAGES: Final = 2**24
"""That are sealed with one salt. Two of them share a nonce with a probability of one in 2 to the 49th."""
MOST_SALTS: Final = 256
"""Whose keys are kept at hand for opening."""
_ACTIVE: Final = "active"
_PURPOSE: Final = b"taskharbor encryption 1: "


class _Key(NamedTuple):
    """What is made of one key of the ring. Never shown."""

    id: str
    sealing: bytes
    check: bytes
    fingerprints: bytes

    def __repr__(self) -> str:
        return f"<key {self.id}>"


class Keyring:
    """Keys by their id. `active` is the one that everything new is encrypted with; the others open what is there.

    A key is 32 bytes, or the base64 text of them, as `taskharbor keys generate` and `Keyring.generate` make it. With
    one key alone, that one is active. The first key of the ring also makes the fingerprints that duplicates are
    recognised by: add new keys behind it. With `accept_plain=False`, what is not encrypted is refused.
    """

    def __init__(
        self, keys: Mapping[str, bytes | str], *, active: str | None = None, accept_plain: bool = True
    ) -> None:
        if not isinstance(keys, Mapping):
            raise InvalidInput(f"Keyring takes keys by their id, Keyring({{'2026-11': …}}), got {type(keys).__name__}")
        if not keys:
            raise InvalidInput("the key ring is empty: make a key with `taskharbor keys generate`")
        secrets = {envelope.check_key_id(key_id): _secret(key_id, value) for key_id, value in keys.items()}
        if active is None:
            if len(secrets) > 1:
                raise InvalidInput(
                    f"say which key is active, Keyring(…, active={list(secrets)[-1]!r}): there are several"
                )
            active = next(iter(secrets))
        if active not in secrets:
            raise InvalidInput(f"the active key {active!r} is not in the ring: it has {', '.join(secrets)}")
        if len(set(secrets.values())) < len(secrets):
            raise InvalidInput("two ids of the ring have the same key: make a new one with `taskharbor keys generate`")
        self.active = active
        self.accept_plain = accept_plain
        cipher, derive = _library()
        self._keys = {key_id: _made(key_id, secret, derive) for key_id, secret in secrets.items()}
        self._writing = self._keys[active]
        self._fingerprints = next(iter(self._keys.values())).fingerprints

        @lru_cache(maxsize=MOST_SALTS)
        def cipher_for(key: _Key, salt: bytes) -> AESGCM:
            return cipher(hmac.digest(key.sealing, salt, "sha256"))

        self._cipher_for = cipher_for
        self._left = 0
        self._renew()

    # --- Where keys come from --------------------------------------------------------------------------------

    @staticmethod
    def generate() -> str:
        """A new key, as text."""
        return base64.b64encode(os.urandom(KEY_BYTES)).decode()

    @classmethod
    def parse(cls, text: str, *, where: str = "the keys", accept_plain: bool = True) -> Self:
        """A ring from lines of `id:base64`. The line marked with a second word, `active`, is the active one, else the
        last. Empty lines and lines that begin with # are left out."""
        keys: dict[str, str] = {}
        marked: list[str] = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            key_id, colon, secret = words[0].partition(":")
            # None of it is quoted: a line that is wrong may still be a secret.
            if not colon or len(words) > 2 or (len(words) == 2 and words[1] != _ACTIVE):
                raise InvalidInput(f"{where}, line {number}: a line is id:base64, or id:base64 active")
            if key_id in keys:
                raise InvalidInput(f"{where}, line {number}: the id {key_id!r} is there twice: give each key its own")
            try:
                _secret(envelope.check_key_id(key_id), secret)
            except InvalidInput as error:
                raise InvalidInput(f"{where}, line {number}: {error}") from None
            keys[key_id] = secret
            marked += [key_id] * (len(words) == 2)
        if len(marked) > 1:
            raise InvalidInput(f"{where}: {' and '.join(marked)} are both marked active: only one can be")
        if not keys:
            raise InvalidInput(f"{where}: there is no key: add a line that `taskharbor keys generate` prints")
        return cls(keys, active=marked[0] if marked else list(keys)[-1], accept_plain=accept_plain)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, accept_plain: bool = True) -> Self:
        """A ring from a file of such lines. One that everybody may read is warned of in the log, once."""
        try:
            text = Path(path).read_text("utf-8")
            _warn_of_readers(Path(path).absolute())
        except OSError as error:
            raise InvalidInput(f"cannot read the encryption keys in {path}: {error.strerror}") from None
        except ValueError:
            raise InvalidInput(f"{path} is no file of encryption keys: its lines are id:base64") from None
        return cls.parse(text, where=str(path), accept_plain=accept_plain)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    # --- Jobs ------------------------------------------------------------------------------------------------

    def seal_job(self, job: NewJob) -> NewJob:
        """The job with its payload encrypted, and with the id that this is bound to."""
        if not isinstance(job, NewJob) or not isinstance(job.payload, bytes):
            return job  # which the store will refuse, in better words
        key = job.idempotency_key
        if isinstance(key, str) and key.startswith(MADE_OF_ARGUMENTS):
            # A plain hash of arguments can be guessed by trying; this one needs the key.
            _check_place(job.tenant_id, job.type)
            job = job._replace(idempotency_key=MADE_OF_ARGUMENTS + self._fingerprint(job.tenant_id, key.encode()).hex())
        job_id = new_id() if job.id is None else job.id
        plain, tenant, type, keyed = job.payload, job.tenant_id, job.type, key is not None

        def sealed_for(id: str) -> bytes:
            return self.seal_payload(plain, tenant=tenant, id=id, type=type, keyed=keyed)

        # One that may take the place of another gets that one's id, which only the store knows, and when it does.
        replacing = sealed_for if keyed and job.on_duplicate == "replace" else None
        return job._replace(id=job_id, payload=sealed_for(job_id), payload_for=replacing)

    def seal_payload(self, payload: bytes, *, tenant: str, id: str, type: str, keyed: bool = False) -> bytes:
        """The payload of the job of that id. `keyed` says that it has an idempotency key."""
        check_name(id, "id", MAX_ID)
        _check_place(tenant, type)
        fingerprint = self._fingerprint(tenant, payload) if keyed else None
        return self._seal(Kind.PAYLOAD, _context(Kind.PAYLOAD, tenant, type, id), payload, fingerprint)

    def open_payload(self, job: Job) -> bytes:
        """The payload in plain. EncryptionKeyMissing or DecryptionFailed if it cannot be had."""
        data = job.payload
        if not envelope.is_sealed(data):
            return self._plain(data, "payload")
        parts = envelope.parse(data)
        kind, name = Kind.PAYLOAD, job.id
        if parts.kind == Kind.SCHEDULE:
            kind, name = Kind.SCHEDULE, job.meta.get(SCHEDULE, "")
        return self._open(parts, _context(kind, job.tenant_id, job.type, name), kind)

    def seal_result(self, job: Job, result: bytes) -> bytes:
        return self._seal(Kind.RESULT, _context(Kind.RESULT, job.tenant_id, job.type, job.id), result)

    def open_result(self, job: Job) -> bytes | None:
        data = job.result
        if data is None:
            return None
        if not envelope.is_sealed(data):
            return self._plain(data, "result")
        context = _context(Kind.RESULT, job.tenant_id, job.type, job.id)
        return self._open(envelope.parse(data), context, Kind.RESULT)

    def seal_schedule(self, payload: bytes, *, tenant: str, type: str, name: str) -> bytes:
        """The payload of a schedule. The jobs of its ticks carry these very bytes, so that whoever enqueues them, the
        leader of the workers or an operator, needs no key."""
        return self._seal(Kind.SCHEDULE, _context(Kind.SCHEDULE, tenant, type, name), payload)

    # --- The work itself -------------------------------------------------------------------------------------

    def _seal(self, kind: Kind, context: bytes, plain: bytes, fingerprint: bytes | None = None) -> bytes:
        if self._left <= 0:
            self._renew()
        self._left -= 1  # two threads at once may count one message for two, which the bound has room for
        key, (salt, cipher) = self._writing, self._now
        nonce = os.urandom(envelope.NONCE_BYTES)
        head = envelope.header(kind, key.id, key.check, salt, fingerprint, nonce)
        return head + cipher.encrypt(nonce, plain, head + context)

    def _renew(self) -> None:
        salt = os.urandom(envelope.SALT_BYTES)
        self._now = (salt, self._cipher_for(self._writing, salt))
        self._left = MOST_MESSAGES

    def _open(self, parts: envelope.Envelope, context: bytes, kind: Kind) -> bytes:
        key = self._keys.get(parts.key_id)
        if key is None:
            raise missing_key(parts.key_id, f"the ring here has {', '.join(self._keys)}")
        if not hmac.compare_digest(key.check, parts.check):
            raise EncryptionKeyMissing(
                f"encrypted with another key than the one that is called {key.id!r} here: give both processes the "
                "same key under that id"
            )
        if parts.kind != kind:
            raise envelope.damaged()
        cipher = self._cipher_for(key, parts.salt)
        try:
            return cipher.decrypt(parts.nonce, parts.sealed, parts.header + context)
        except Exception:  # InvalidTag: the library's own class, which says nothing more
            raise envelope.damaged() from None

    def _plain(self, data: bytes, what: str) -> bytes:
        if not self.accept_plain:
            raise DecryptionFailed(f"the {what} is not encrypted, and this application takes encrypted ones only")
        return data

    def _fingerprint(self, tenant: str, payload: bytes) -> bytes:
        return hmac.digest(self._fingerprints, _framed(tenant) + payload, "sha256")

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)}; active: {self.active})"

    def __reduce__(self) -> Any:
        raise TypeError("a key ring is not pickled: other processes make their own from the same file")


def missing_key(key_id: str, known: str) -> EncryptionKeyMissing:
    return EncryptionKeyMissing(
        f"encrypted with the key {key_id!r}, which this process does not have ({known}): add that key to its ring, by "
        f"Harbor(encryption=…) or the file that {KEYS} names"
    )


def ring_for(given: Any) -> Keyring | None:
    """What `Harbor(encryption=…)` means: a ring; None for the environment's; False for none."""
    if given is None:
        path = os.environ.get(KEYS, "").strip()
        return Keyring.read(path) if path else None
    if given is False:
        return None
    if not isinstance(given, Keyring):
        raise InvalidInput(f"encryption takes a Keyring, or False for none, got {type(given).__name__}")
    return given


def _context(kind: Kind, tenant: str, type: str, name: str) -> bytes:
    """What a ciphertext belongs to. Each part has its length before it, so that no two contexts are the same bytes."""
    whose, what, which = tenant.encode(), type.encode(), name.encode()
    return b"%d,%d:%b%d:%b%d:%b" % (kind, len(whose), whose, len(what), what, len(which), which)


def _check_place(tenant: str, type: str) -> None:
    """In the words in which the store would refuse them."""
    check_name(type, "type", MAX_NAME)
    check_name(tenant, "tenant_id", MAX_TENANT)


def _framed(text: str) -> bytes:
    encoded = text.encode()
    return b"%d:%b" % (len(encoded), encoded)


def _secret(key_id: str, value: bytes | str) -> bytes:
    """The 32 bytes. What was given is never quoted."""
    if isinstance(value, str):
        try:
            value = base64.b64decode(value.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput(
                f"the key {key_id!r} is not base64: `taskharbor keys generate` prints one that is"
            ) from None
    if not isinstance(value, bytes):
        raise InvalidInput(f"the key {key_id!r} must be bytes or base64 text, got {type(value).__name__}")
    if len(value) != KEY_BYTES:
        raise InvalidInput(
            f"the key {key_id!r} has {len(value)} bytes and must have {KEY_BYTES}: "
            "`taskharbor keys generate` prints one"
        )
    return value


def _made(key_id: str, secret: bytes, derive: Callable[[bytes, bytes, int], bytes]) -> _Key:
    return _Key(
        key_id,
        derive(secret, _PURPOSE + b"sealing", 32),
        derive(secret, _PURPOSE + b"check", envelope.CHECK_BYTES),
        derive(secret, _PURPOSE + b"fingerprints", 32),
    )


def _library() -> tuple[type[AESGCM], Callable[[bytes, bytes, int], bytes]]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise MissingExtra("encryption needs an extra: pip install 'taskharbor[crypto]'") from None

    def derive(secret: bytes, purpose: bytes, length: int) -> bytes:
        return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(secret)

    return AESGCM, derive


@lru_cache(maxsize=64)
def _warn_of_readers(path: Path) -> None:
    """Once for each file, because every `Harbor` may read it."""
    if os.name == "nt":  # whose modes say nothing about readers
        return
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        log.warning("the encryption keys in %s can be read by everybody on this machine: chmod 600 %s", path, path)

"""Access tokens: who may call a server of this store, for which tenant, and in which role.

The store keeps the hash of a secret, never the secret. The secret has 256 random bits, so a plain hash of it cannot be
guessed back, and a check costs next to nothing.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from taskharbor.core.clock import checked
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_NAME, MAX_TENANT, check_name

ALL_TENANTS: Final = "*"
"""The `tenant_id` of a token that is good for every tenant."""

_ID: Final = re.compile(r"[0-9a-f]{12}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_SECRET: Final = re.compile(r"th_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Role(StrEnum):
    """What a token is for."""

    VIEWER = "viewer"
    PRODUCER = "producer"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as the store keeps it. `secret_hash` is the SHA-256 of the secret in hexadecimal digits."""

    id: str
    name: str
    tenant_id: str
    role: Role
    secret_hash: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


def new_token(
    name: str, tenant_id: str, role: Role | str, now: datetime, expires_at: datetime | None = None
) -> tuple[Token, str]:
    """A token for `add_token`, and the text that its user keeps; nobody can read that from the store later."""
    secret = secrets.token_urlsafe(32)
    token = check_token(Token(secrets.token_hex(6), name, tenant_id, _role(role), _hash(secret), now, expires_at))
    if token.expires_at is not None and token.expires_at <= token.created_at:
        raise InvalidInput(f"a token that expires at {expires_at} would never be good: give a later time")
    return token, f"th_{token.id}_{secret}"


def read_secret(text: str) -> tuple[str, str] | None:
    """The id and the hash of the secret in what a user sent; None if it has not the form of a token."""
    found = _SECRET.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else (found[1], _hash(found[2]))


def matches(token: Token, secret_hash: str, now: datetime) -> bool:
    """Whether this secret opens with this token at `now`. Takes the same time however much of the hash is right."""
    same = compare_digest(token.secret_hash, secret_hash)
    return same and token.revoked_at is None and (token.expires_at is None or now < token.expires_at)


def check_token(token: Token) -> Token:
    """The token with its times in UTC; InvalidInput if no store should keep it."""
    if not isinstance(token, Token):
        raise InvalidInput(f"add_token takes a Token, got {type(token).__name__}: new_token(name, tenant, role, now)")
    for value, form, what in ((token.id, _ID, "id"), (token.secret_hash, _HASH, "secret_hash")):
        if not isinstance(value, str) or form.fullmatch(value) is None:
            raise InvalidInput(f"the {what} of a token has not the form that new_token gives it: use new_token")
    role = _role(token.role)
    tenant_id = check_name(token.tenant_id, "tenant_id", MAX_TENANT)
    if role is Role.PRODUCER and tenant_id == ALL_TENANTS:
        raise InvalidInput("a producer enqueues for one tenant: name it (only other roles can have all of them)")
    return replace(
        token,
        name=check_name(token.name, "the name of a token", MAX_NAME),
        tenant_id=tenant_id,
        role=role,
        created_at=checked(token.created_at, "created_at"),
        expires_at=None if token.expires_at is None else checked(token.expires_at, "expires_at"),
        revoked_at=None if token.revoked_at is None else checked(token.revoked_at, "revoked_at"),
    )


def _role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        known = ", ".join(known.value for known in Role)
        raise InvalidInput(f"there is no role {role!r}: known are {known}") from None


def _hash(secret: str) -> str:
    return sha256(secret.encode("ascii")).hexdigest()

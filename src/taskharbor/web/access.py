"""Who may do what. A bearer token carries a tenant and a role; roles are a table of permissions.

The permission is checked before anything is looked at, so that an answer never tells whether a job exists. A token is
looked up in the store at every request, and so is void from the moment it is revoked.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from fastapi import Request

from taskharbor.core.contract import Driver
from taskharbor.core.errors import StoreError
from taskharbor.core.tokens import ALL_TENANTS, Role, matches, read_secret
from taskharbor.web.batching import Batcher
from taskharbor.web.problems import Problem
from taskharbor.web.settings import Settings
from taskharbor.web.shell import PRINCIPAL
from taskharbor.web.threads import Threads

OPEN_FOR_S: Final = 1.0
"""How long a server without tokens goes on before it looks whether there is one by now."""


class Permission(StrEnum):
    READ = "read"
    ENQUEUE = "enqueue"
    CANCEL = "cancel"
    LEASE = "lease"
    RETRY = "retry"
    """Send jobs back from the DLQ, one or many."""
    GOVERN = "govern"
    """Pause and resume queues and schedules, set limits."""
    TOKENS = "tokens"


_WORDS: Final[Mapping[Permission, str]] = {
    Permission.READ: "look at jobs",
    Permission.ENQUEUE: "enqueue jobs",
    Permission.CANCEL: "cancel jobs",
    Permission.LEASE: "lease jobs and run them",
    Permission.RETRY: "send dead letters back",
    Permission.GOVERN: "change queues, limits and schedules",
    Permission.TOKENS: "make and revoke tokens",
}
"""How people are told what they may not do."""

_PERMISSIONS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.VIEWER: frozenset({Permission.READ}),
    Role.PRODUCER: frozenset({Permission.READ, Permission.ENQUEUE, Permission.CANCEL}),
    Role.WORKER: frozenset({Permission.READ, Permission.LEASE}),
    Role.OPERATOR: frozenset(Permission) - {Permission.LEASE, Permission.TOKENS},
    Role.ADMIN: frozenset(Permission),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever makes a request."""

    token_id: str
    tenant_id: str | None
    """The one tenant it acts for; None for every tenant."""
    role: Role
    via: Literal["bearer", "session", "open"] = "bearer"
    name: str = ""

    def may(self, permission: Permission, *, every_tenant: bool = False) -> bool:
        return permission in _PERMISSIONS[self.role] and (self.tenant_id is None or not every_tenant)

    def sees(self, tenant_id: str) -> bool:
        return self.tenant_id is None or self.tenant_id == tenant_id

    def require(self, permission: Permission, *, every_tenant: bool = False) -> None:
        if permission not in _PERMISSIONS[self.role]:
            raise Problem("forbidden", f"the role {self.role} may not {_WORDS[permission]}")
        if every_tenant and self.tenant_id is not None:
            raise Problem("forbidden", "this is about all tenants, and the token is for one of them")

    def chosen(self, tenant: str | None) -> str | None:
        """The tenant to look at: the token's own, else the one asked for, else all (None)."""
        if self.tenant_id is None:
            return tenant
        if tenant is not None and tenant != self.tenant_id:
            raise Problem("forbidden", "the token is for another tenant")
        return self.tenant_id


EVERYBODY: Final = Principal("", None, Role.ADMIN, "open")


class _Question(NamedTuple):
    token_id: str
    secret_hash: str | None
    """None for a session, whose cookie we signed ourselves."""


class Access:
    """Knows principals by their tokens. Requests that come at once share one look-up."""

    def __init__(self, driver: Driver, settings: Settings, threads: Threads) -> None:
        self._driver = driver
        self._threads = threads
        self._look_ups: Batcher[_Question, Principal | None] = Batcher(self._find, threads)
        self._is_open = settings.open
        self._look_again_at = 0.0

    async def of_request(self, request: Request) -> Principal:
        """By the header `Authorization`; a problem if there is no valid token in it."""
        if self._is_open and await self.is_open():
            return EVERYBODY
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Problem("unauthenticated", "send a token in the header `Authorization: Bearer …`")
        known = read_secret(secret.strip())
        principal = None if known is None else await self._look_ups.submit(_Question(*known))
        if principal is None:
            raise Problem("unauthenticated", "the token is unknown, revoked or expired")
        return principal

    async def again(self, request: Request, permission: Permission) -> None:
        """For a request that goes on for a while: whether its token is good still."""
        (await self.of_request(request)).require(permission)

    async def of_secret(self, text: str) -> Principal | None:
        """By the token itself, as it is typed into the login."""
        known = read_secret(text.strip())
        return None if known is None else await self._look_ups.submit(_Question(*known))

    async def of_session(self, token_id: str) -> Principal | None:
        """By the id that a session of ours holds; None once the token is revoked or expired."""
        return await self._look_ups.submit(_Question(token_id, None))

    async def is_open(self) -> bool:
        """Whether there still is no token. The first one shuts the open door, and it stays shut."""
        if not self._is_open:
            return False
        if time.monotonic() >= self._look_again_at:
            self._look_again_at = time.monotonic() + OPEN_FOR_S
            try:
                self._is_open = not await self._threads.run(self._driver.tokens)
            except StoreError:
                self._look_again_at = 0.0
                raise
        return self._is_open

    def _find(self, questions: Sequence[_Question]) -> list[Principal | None]:
        tokens = {token.id: token for token in self._driver.get_tokens(sorted({each.token_id for each in questions}))}
        now = self._driver.now()
        found: list[Principal | None] = []
        for token_id, secret_hash in questions:
            token = tokens.get(token_id)
            if token is None or not matches(token, token.secret_hash if secret_hash is None else secret_hash, now):
                found.append(None)
                continue
            tenant_id = None if token.tenant_id == ALL_TENANTS else token.tenant_id
            via: Literal["bearer", "session"] = "session" if secret_hash is None else "bearer"
            found.append(Principal(token.id, tenant_id, Role(token.role), via, token.name))
        return found


def allow(permission: Permission, *, every_tenant: bool = False) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency: whoever makes the request, if they may do this. `every_tenant`: only a token for all tenants."""

    async def principal(request: Request) -> Principal:
        access: Access = request.app.state.access
        found = await access.of_request(request)
        request.scope[PRINCIPAL] = found
        found.require(permission, every_tenant=every_tenant)
        return found

    return principal

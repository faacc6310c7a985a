"""Tokens of servers: the calls that all drivers share, and their rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.core import limits as bounds
from taskharbor.core.errors import InvalidInput
from taskharbor.core.tokens import Role, Token, check_token
from taskharbor.drivers.checks import LONGEST_SOUGHT, check_words, sought
from taskharbor.drivers.operations import StoreOperations


class AccessCalls(StoreOperations):
    """The access part of the contract over the operations of a store."""

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _moment(self, now: datetime | None) -> datetime: ...

    def add_token(self, token: Token) -> None:
        self._check_open()
        with self._told_where():
            if not self._add_token(check_token(token)):
                raise InvalidInput(f"there is a token with the id {token.id} already: make another one with new_token")

    def tokens(self) -> Sequence[Token]:
        self._check_open()
        return self._tokens()

    def get_tokens(self, ids: Sequence[str]) -> Sequence[Token]:
        self._check_open()
        try:
            chosen = tuple(dict.fromkeys([ids] if isinstance(ids, str) else ids))
        except TypeError:
            raise InvalidInput(f"get_tokens takes a list of ids, got {ids!r}") from None
        check_words(chosen, "the id of a token")
        if len(chosen) > bounds.MAX_BATCH:
            raise InvalidInput(f"one get_tokens takes at most {bounds.MAX_BATCH:,} ids: split the list")
        return self._get_tokens([id[:LONGEST_SOUGHT] for id in chosen]) if chosen else []

    def revoke_token(self, id: str, *, now: datetime | None = None) -> bool:
        moment = self._moment(now)
        id = sought(id, "the id of a token")
        with self._told_where():
            return self._revoke_token(id, moment)


def token_params(token: Token) -> dict[str, Any]:
    """The columns of a token by name."""
    return {
        "id": token.id,
        "name": token.name,
        "tenant_id": token.tenant_id,
        "role": token.role.value,
        "secret_hash": token.secret_hash,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }


def token_from_row(row: Sequence[Any]) -> Token:
    """The same columns in the same order, with times as datetimes."""
    id, name, tenant_id, role, secret_hash, created_at, expires_at, revoked_at = row
    return Token(id, name, tenant_id, Role(role), secret_hash, created_at, expires_at, revoked_at)

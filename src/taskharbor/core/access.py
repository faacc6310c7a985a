"""The part of the driver contract that keeps the tokens of servers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from taskharbor.core.tokens import Token


@runtime_checkable
class Access(Protocol):
    """Where the tokens of a server are kept. Stores check nothing with them: see `core.tokens`."""

    def add_token(self, token: Token) -> None:
        """Keep the token; InvalidInput if there is one with its id."""
        ...

    def tokens(self) -> Sequence[Token]:
        """Every token, also revoked and expired ones, by the time of its making, then id."""
        ...

    def get_tokens(self, ids: Sequence[str]) -> Sequence[Token]:
        """The tokens with these ids in any order; ids of none are left out. One quick question for all of them."""
        ...

    def revoke_token(self, id: str, *, now: datetime | None = None) -> bool:
        """The token opens nothing any more, for good. Whether there was one that still was not revoked."""
        ...

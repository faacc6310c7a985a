"""Tokens of servers: kept, read, revoked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.core.tokens import Token
from taskharbor.drivers.access import token_from_row, token_params
from taskharbor.drivers.postgres.session import Session


class Access:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, token: Token) -> bool:
        return bool(self._session.change_all(("add_token", token_params(token)))[0])

    def tokens(self) -> Sequence[Token]:
        return [token_from_row(row) for row in self._session.run("tokens", {})]

    def get(self, ids: Sequence[str]) -> Sequence[Token]:
        return [token_from_row(row) for row in self._session.run("get_tokens", {"ids": list(ids)})]

    def revoke(self, id: str, now: datetime) -> bool:
        return bool(self._session.change_all(("revoke_token", {"id": id, "now": now}))[0])

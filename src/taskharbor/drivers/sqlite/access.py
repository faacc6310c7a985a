"""Tokens of servers: kept, read, revoked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.tokens import Token
from taskharbor.drivers.access import token_from_row, token_params
from taskharbor.drivers.sqlite.records import Row, in_micros, moment
from taskharbor.drivers.sqlite.store import SqliteStore


class Access(SqliteStore):
    """The tokens of the contract."""

    def _add_token(self, token: Token) -> bool:
        with self._changing() as connection:
            return connection.execute(self._sql["add_token"], in_micros(token_params(token))).rowcount > 0

    def _tokens(self) -> Sequence[Token]:
        with self._reading() as connection:
            return _tokens(connection.execute(self._sql["tokens"]))

    def _get_tokens(self, ids: Sequence[str]) -> Sequence[Token]:
        with self._reading() as connection:
            return _tokens(connection.execute(self._sql["get_tokens"], {"ids": json.dumps(ids, ensure_ascii=False)}))

    def _revoke_token(self, id: str, now: datetime) -> bool:
        with self._changing() as connection:
            return connection.execute(self._sql["revoke_token"], {"id": id, "now": to_micros(now)}).rowcount > 0


def _tokens(rows: Iterable[Row]) -> list[Token]:
    return [token_from_row([*row[:5], from_micros(row[5]), moment(row[6]), moment(row[7])]) for row in rows]

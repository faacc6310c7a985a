"""Tokens of servers: kept, read, revoked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.core.tokens import Token
from taskharbor.drivers.access import token_from_row, token_params
from taskharbor.drivers.mysql.store import Session
from taskharbor.drivers.mysql.values import sql_time


def add(session: Session, token: Token) -> bool:
    params = token_params(token)
    values = {name: sql_time(v) if isinstance(v, datetime) else v for name, v in params.items()}
    return session.run("add_token", **values) > 0


def tokens(session: Session) -> Sequence[Token]:
    return [token_from_row(row) for row in session.rows("tokens")]


def get(session: Session, ids: Sequence[str]) -> Sequence[Token]:
    return [token_from_row(row) for row in session.rows_by_id("get_tokens", ids)]


def revoke(session: Session, id: str, now: datetime) -> bool:
    return session.run("revoke_token", id=id, now=sql_time(now)) > 0

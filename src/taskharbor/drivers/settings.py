"""What operators have set, in the in-process engine: queues, limits, fair shares and tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from taskharbor.core.carrying import MARKS, Carrier
from taskharbor.core.contract import Leased
from taskharbor.core.limiting import Limit
from taskharbor.core.model import QueueSettings
from taskharbor.core.tokens import Token
from taskharbor.core.workflow import UNFINISHED
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.desk import Before, EngineDesk
from taskharbor.drivers.engine_carrying import EngineCarrier
from taskharbor.drivers.governing import Ask, Desk, Rules
from taskharbor.drivers.state import State

T = TypeVar("T")


class EngineSettings(BaseDriver):
    @abstractmethod
    def _reading(self) -> AbstractContextManager[State]:
        """The state, held still while it is read."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[State]:
        """The state, held for one change that is kept as a whole or not at all."""

    @contextmanager
    def _changing(self) -> Iterator[State]:
        """`_writing` for what is refused in a store that is shut. Nobody can shut it in between."""
        with self._writing() as state:
            state.refuse_shut()
            yield state

    @abstractmethod
    def _lease(self, state: State, ask: Ask, before: Before) -> Leased:
        """Claim, and keep in `before` what the jobs were."""

    def carrier(self) -> Carrier:
        return EngineCarrier(self._reading, self._writing)

    @abstractmethod
    def _sweep(self, state: State, queues: Sequence[str], now: datetime) -> None:
        """Take back ended leases and expire what is late, as any claim does first."""

    def _set_paused(self, queue: str, paused: bool) -> None:
        with self._writing() if queue in MARKS else self._changing() as state:
            state.put("queues", queue, replace(_settings(state, queue), paused=paused))

    def _queues(self) -> Sequence[QueueSettings]:
        with self._reading() as state:
            return [state.queues[name] for name in sorted(state.queues)]

    def _read_rules(self) -> Rules:
        with self._reading() as state:
            flows = any(record.flow.state in UNFINISHED for record in state.workflows.values())
            return Rules(tuple(state.limits.values()), dict(state.queues), bool(state.bench), flows)

    def _at_desk(self, work: Callable[[Desk], T]) -> T:
        with self._writing() as state:
            return work(EngineDesk(state, self._lease, self._sweep))

    def _set_limit(self, limit: Limit, now: datetime) -> None:
        with self._changing() as state:
            state.put("limits", limit.key, limit)
            _wake(state, limit.key, now)

    def _drop_limit(self, key: tuple[str, str, str], now: datetime) -> bool:
        with self._changing() as state:
            if key not in state.limits:
                return False
            state.drop("limits", key)
            _wake(state, key, now)
            _clear_tokens(state, key)
            return True

    def _set_fair(self, queue: str, fair: bool, weights: Mapping[str, float]) -> None:
        with self._changing() as state:
            state.put("queues", queue, replace(_settings(state, queue), fair=fair, weights=dict(weights)))

    # --- Tokens ------------------------------------------------------------------------------------------

    def _add_token(self, token: Token) -> bool:
        with self._changing() as state:
            fresh = token.id not in state.tokens
            if fresh:
                state.put("tokens", token.id, token)
            return fresh

    def _tokens(self) -> Sequence[Token]:
        with self._reading() as state:
            return sorted(state.tokens.values(), key=lambda token: (token.created_at, token.id))

    def _get_tokens(self, ids: Sequence[str]) -> Sequence[Token]:
        with self._reading() as state:
            return [state.tokens[id] for id in ids if id in state.tokens]

    def _revoke_token(self, id: str, now: datetime) -> bool:
        with self._changing() as state:
            token = state.tokens.get(id)
            if token is None or token.revoked_at is not None:
                return False
            state.put("tokens", id, replace(token, revoked_at=now))
            return True


def _settings(state: State, queue: str) -> QueueSettings:
    return state.queues.get(queue) or QueueSettings(queue)


def _clear_tokens(state: State, key: tuple[str, str, str]) -> None:
    """Of a limit that is gone: what has a bench stays until that is empty."""
    for bucket, kept in list(state.buckets.items()):
        if kept.limit == key and kept.wake_at is None:
            state.drop("buckets", bucket)
        elif kept.limit == key:
            state.put("buckets", bucket, replace(kept, tokens=None, counted_at=None))


def _wake(state: State, key: tuple[str, str, str], now: datetime) -> None:
    """Whoever waits for this limit is looked at again. Tokens stay as they were counted."""
    for bucket, kept in list(state.buckets.items()):
        if kept.limit == key and state.has_bench(bucket):
            state.put("buckets", bucket, replace(kept, wake_at=now))

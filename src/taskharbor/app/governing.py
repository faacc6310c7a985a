"""Limits and fair queues of an application: declared in code, put into the store by its workers, or changed at once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from taskharbor.app.task import Task
from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.fairness import checked_weights
from taskharbor.core.limiting import Limit, checked_limit, rate_a_second
from taskharbor.core.limits import MAX_NAME, check_name
from taskharbor.core.model import QueueSettings

if TYPE_CHECKING:
    TaskLike = str | Task[Any, Any]


class Governing:
    """The part of a harbor that says how much may run and start, and who shares what."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str, str], Limit] = {}
        self._shared: dict[str, QueueSettings] = {}
        self.limits: Mapping[tuple[str, str, str], Limit] = MappingProxyType(self._limits)
        """What `limit` has declared, by scope, name and part."""

    @property
    def driver(self) -> Driver:
        raise NotImplementedError

    def limit(
        self,
        *,
        queue: str | None = None,
        type: TaskLike | None = None,
        tenant: str | None = None,
        per: str = "",
        concurrency: int | None = None,
        rate: float | str | None = None,
        burst: int | None = None,
    ) -> Limit:
        """Declare how many jobs of a queue, a type or a tenant may run at once (`concurrency`) and start in a second
        (`rate`, a number or text like "60/m"). `per="key"` counts each `limit_key` for itself, `per="tenant"` each
        tenant. Workers of this application put it into the store when they start; from then on it holds for all."""
        limit = _limit(queue, type, tenant, per, concurrency, rate, burst)
        self._limits[limit.key] = limit
        return limit

    def queue(self, name: str, *, fair: bool = True, weights: Mapping[str, float] | None = None) -> QueueSettings:
        """Declare that tenants share a queue, each by its weight (1 unless given). Workers of this application put it
        into the store when they start."""
        check_name(name, "queue", MAX_NAME)
        if not isinstance(fair, bool):
            raise InvalidInput(f"fair must be True or False, got {fair!r}")
        settings = QueueSettings(name, fair=fair, weights=checked_weights(weights))
        if settings.weights and not settings.fair:
            raise InvalidInput("weights go with fair=True: a queue that is not fair has none")
        self._shared[name] = settings
        return settings

    def set_limit(
        self,
        *,
        queue: str | None = None,
        type: TaskLike | None = None,
        tenant: str | None = None,
        per: str = "",
        concurrency: int | None = None,
        rate: float | str | None = None,
        burst: int | None = None,
    ) -> None:
        """Put a limit into the store: every worker keeps to it within a second. Arguments as `limit` takes them."""
        self.driver.set_limit(_limit(queue, type, tenant, per, concurrency, rate, burst))

    def lift_limit(
        self, *, queue: str | None = None, type: TaskLike | None = None, tenant: str | None = None, per: str = ""
    ) -> bool:
        """Take a limit out of the store; what it held back runs. Whether there was one. Workers that start put those
        back that the application declares."""
        return self.driver.drop_limit(*_place(queue, type, tenant), per)

    def set_fair(self, queue: str, fair: bool = True, weights: Mapping[str, float] | None = None) -> None:
        """Let tenants share a queue by weight, or no longer, in the store and at once."""
        self.driver.set_fair(queue, fair, weights)

    def put_rules(self) -> None:
        """Put into the store what was declared and is not there as it is. Workers do this when they start."""
        if self._limits:
            kept = {limit.key: limit for limit in self.driver.get_limits()}
            for key, limit in self._limits.items():
                if kept.get(key) != limit:
                    self.driver.set_limit(limit)
        if self._shared:
            known = {queue.name: queue for queue in self.driver.queues()}
            for name, wanted in self._shared.items():
                found = known.get(name, QueueSettings(name))
                if (found.fair, dict(found.weights)) != (wanted.fair, dict(wanted.weights)):
                    self.driver.set_fair(name, wanted.fair, wanted.weights)


def _limit(
    queue: str | None,
    type: TaskLike | None,
    tenant: str | None,
    per: str,
    concurrency: int | None,
    rate: float | str | None,
    burst: int | None,
) -> Limit:
    scope, name = _place(queue, type, tenant)
    number = None if rate is None else rate_a_second(rate)
    return checked_limit(Limit(scope, name, per, concurrency, number, burst))


def _place(queue: str | None, type: TaskLike | None, tenant: str | None) -> tuple[str, str]:
    kind = type.name if isinstance(type, Task) else type
    given = [
        (scope, name) for scope, name in (("queue", queue), ("type", kind), ("tenant", tenant)) if name is not None
    ]
    if len(given) != 1:
        raise InvalidInput("a limit is for one queue, one type or one tenant: limit(queue='reports', concurrency=4)")
    return given[0]

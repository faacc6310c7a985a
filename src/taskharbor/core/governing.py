"""The part of the driver contract that is about limits and fair shares; `core.contract` has the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from taskharbor.core.limiting import Limit


@runtime_checkable
class Governing(Protocol):
    """Limits on what runs and starts, and fair shares of tenants. Claims of every driver keep to them within a second
    of a change."""

    def set_limit(self, limit: Limit, *, now: datetime | None = None) -> None:
        """The limit is in force, in place of the one with its scope, name and part if there was one. What is running
        goes on, and is counted. A claim never lets more run at once than a limit allows, nor start more than its
        tokens; a job that a limit holds back lets those behind it pass, and keeps its place in line."""
        ...

    def drop_limit(self, scope: str, name: str, per: str = "", *, now: datetime | None = None) -> bool:
        """The limit is lifted, and what it held back can run at once. Whether there was one."""
        ...

    def get_limits(self) -> Sequence[Limit]:
        """Every limit, by scope, name and part."""
        ...

    def set_fair(
        self,
        queue: str,
        fair: bool = True,
        weights: Mapping[str, float] | None = None,
        *,
        now: datetime | None = None,
    ) -> None:
        """Tenants share the queue by weight, inside each priority; with `fair=False`, the first come goes first again.
        The weights replace those of before; a tenant without one has the weight 1."""
        ...

    def is_scarce(self, queues: str | Sequence[str]) -> bool:
        """Whether a limit on what runs at once holds jobs of these queues as a whole: then whoever takes more than it
        can begin keeps others from beginning. As far as this driver knows by now."""
        ...

    def look_again_at(self, queues: str | Sequence[str]) -> datetime | None:
        """When the passing of time alone may let more through than the last claim from these queues was given; None
        if no limit on starts held it back."""
        ...

"""How tenants share a fair queue: by tags, given out so that a claim stays one walk along an index.

Every job of a fair queue gets a tag when it becomes due, and tags take the place of due times in the order of claims.
A tenant's tags go up by one unit over its weight from job to job, starting from where the line stands now. So a tenant
with a million jobs waiting has tags far ahead, and the first job of another one goes in right at the head. This is
start-time fair queueing; `docs/decisions/0015-fair-shares.md` has its bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from taskharbor.core.clock import FIRST_START
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_TENANT, check_name

UNIT: Final = 5_040
"""What one job of weight 1 adds to its tenant's tag; a tag is a number of microseconds since 1970. Whole numbers divide
this one without a rest as far as ten, so that such weights are kept to exactly."""
TAGGED_BEFORE: Final = FIRST_START
"""Tags lie before this moment and true due times behind it, so that one column holds either."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = int((TAGGED_BEFORE - _EPOCH).total_seconds()) * 1_000_000 - 1
HEAD_OF_LINE: Final = "\x01"
"""Beside the tenants of a line: how far it has come, the highest tag that was claimed. It never goes back, also when a
job with an old tag does."""
LEAST_WEIGHT: Final = 0.01
MOST_WEIGHT: Final = 100.0
MOST_WEIGHTS: Final = 10_000


class Newcomer(NamedTuple):
    """A due job without a tag."""

    id: str
    tenant_id: str


def give_tags(
    newcomers: Sequence[Newcomer], last: Mapping[str, int], front: int, head: int, weights: Mapping[str, float]
) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """A tag for each newcomer, in their order, and for each tenant that got one what its next job gets at least.

    `last` has what `give_tags` returned for the tenants before. `front` is the tag of the first job that waits, and
    `head` where the line stands: the same, unless claims have gone past jobs that they do not take. The first job of a
    tenant that had come no further than the head begins at the front, so that it waits for none of those behind; what
    follows it begins at the head, so that it has no more than that of having been away.
    """
    following = dict(last)
    tags = []
    for newcomer in newcomers:
        known = following.get(newcomer.tenant_id, 0)
        tag = min(known if known > head else max(front, known), _LAST)
        following[newcomer.tenant_id] = max(tag + round(UNIT / weights.get(newcomer.tenant_id, 1.0)), head)
        tags.append((newcomer.id, tag))
    concerned = {newcomer.tenant_id for newcomer in newcomers}
    return tags, {tenant: tag for tenant, tag in following.items() if tenant in concerned}


def tag_time(tag: int) -> datetime:
    return _EPOCH + timedelta(microseconds=tag)


def tag_of(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def checked_weights(weights: Mapping[str, float] | None) -> dict[str, float]:
    if weights is None:
        return {}
    if not isinstance(weights, Mapping) or len(weights) > MOST_WEIGHTS:
        raise InvalidInput(f"weights map at most {MOST_WEIGHTS:,} tenants to numbers, for example {{'acme': 2}}")
    for tenant, weight in weights.items():
        check_name(tenant, "tenant_id", MAX_TENANT)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
            raise InvalidInput(
                f"the weight of {tenant!r} must be from {LEAST_WEIGHT} to {MOST_WEIGHT:g}, got {weight!r}"
            )
    return {tenant: float(weight) for tenant, weight in weights.items()}

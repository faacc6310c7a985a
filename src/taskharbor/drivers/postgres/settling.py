"""From settlements to the statements that take a whole batch of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from taskharbor.core.model import Extension, Settle, Settlement, Status
from taskharbor.drivers.postgres.rows import bytes_array, place_array, text_array, time_array
from taskharbor.drivers.postgres.session import Anew, Call, Row

T = TypeVar("T", Settlement, Extension)

LARGEST_RESULTS: Final = 64 * 1024 * 1024
"""Bytes of results in one statement. A message of 1 GiB ends the connection."""
MOST_PLACES: Final = 50_000
MANY: Final = 50
"""Jobs in one statement that finds them by their ids, from which on its plan is worth the time that making it takes."""
BACK: Final = {Settle.RETRY: "retried", Settle.SNOOZE: "snoozed", Settle.RELEASE: "released"}
_ID: Final = itemgetter(0)
_PLACE: Final = itemgetter(-1)


class Batch(NamedTuple):
    """Settlements of one kind, and the statement that settles those that are not odd."""

    name: str
    items: Sequence[Settlement]
    params: Mapping[str, Any]
    status: Status

    @property
    def call(self) -> Call:
        return self.name if "places" in self.params else by_ids(self.name, len(self.items)), self.params


class Places:
    """Where the rows of leased jobs stand in their table, as the claim left them: to go there at once spares the way
    through the index, past the version that the claim has replaced. It is no more than a guess. Who settles looks
    whether it is the row of that job with that token, and whatever it is not is settled by its id."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def note(self, claimed: Sequence[Row]) -> None:
        """The rows of a claim, which begin with the id and end with the place."""
        if len(self._known) > MOST_PLACES:
            self._known.clear()
        self._known.update(zip(map(_ID, claimed), map(_PLACE, claimed), strict=True))

    def take(self, items: Sequence[Settlement]) -> list[bytes | None]:
        """The place of each, where it is known."""
        known = self._known
        return [known.pop(item.id, None) for item in items]

    def forget(self, ids: Iterable[str]) -> None:
        """Their rows have moved."""
        for id in ids:
            self._known.pop(id, None)


def by_ids(name: str, count: int) -> str:
    """The statement that finds so many jobs by their ids."""
    return Anew(name) if count >= MANY else name


def batches_of(settlements: Sequence[Settlement], places: Places, now: datetime) -> list[Batch]:
    """The set-based statements that settle everything but the odd cases. Only the first item for a job is in them:
    whatever else the batch has for it must see what that one did."""
    if not settlements:
        return []
    settlements = first_of_each(settlements)
    ack = Settle.ACK
    acks = [item for item in settlements if item.kind is ack]
    batches = _acks(acks, places, now)
    if len(acks) == len(settlements):  # as nearly always
        return batches
    back = [item for item in settlements if item.kind in BACK]
    dead = [item for item in settlements if item.kind is Settle.FAIL]
    places.forget(item.id for item in (*back, *dead))
    if back:
        updates = [item.update for item in back]
        moves: Mapping[str, Any] = {
            "outcomes": [BACK[item.kind] for item in back],
            "run_ats": [item.update.run_at if item.update else item.run_at for item in back],
            "attempts": [update.attempts if update else None for update in updates],
            "errors": [update.last_error if update else None for update in updates],
            "failed_ats": [update.failed_at if update else None for update in updates],
        }
        batches.append(Batch("back", back, {**_keys(back, now), **moves}, Status.READY))
    if dead:
        reasons = {"reasons": [item.reason for item in dead], "codes": [str(item.code) for item in dead]}
        batches.append(Batch("dead", dead, {**_keys(dead, now), **reasons}, Status.DLQ))
    return batches


def _acks(acks: Sequence[Settlement], places: Places, now: datetime) -> list[Batch]:
    """By their places those whose places are known, and the others by their ids."""
    known = places.take(acks)
    if None not in known:
        return _acks_in_parts(acks, known, now)  # type: ignore[arg-type]
    here = [(item, place) for item, place in zip(acks, known, strict=True) if place is not None]
    others = [item for item, place in zip(acks, known, strict=True) if place is None]
    placed = _acks_in_parts([item for item, _ in here], [place for _, place in here], now)
    return placed + _acks_in_parts(others, None, now)


def _acks_in_parts(acks: Sequence[Settlement], places: Sequence[bytes] | None, now: datetime) -> list[Batch]:
    """In one statement, unless their results are larger than a message to the server should be."""
    bounds = [0]
    size = 0
    if any(item.result for item in acks):
        for number, item in enumerate(acks):
            size += len(item.result or b"")
            if size >= LARGEST_RESULTS and number > bounds[-1]:
                bounds.append(number)
                size = len(item.result or b"")
    batches = []
    for first, end in zip(bounds, [*bounds[1:], len(acks)], strict=True):
        part = acks[first:end]
        if not part:
            continue
        params = {**_keys(part, now), "results": bytes_array([item.result for item in part])}
        if places is None:
            batches.append(Batch("ack+by_id", part, params, Status.DONE))
        else:
            params["places"] = place_array(places[first:end])
            batches.append(Batch("ack+placed", part, params, Status.DONE))
    return batches


def has_repeats(settlements: Sequence[Settlement]) -> bool:
    return len({item.id for item in settlements}) < len(settlements)


def first_of_each(items: Sequence[T]) -> Sequence[T]:
    """The items without those for a job that an earlier one is for."""
    if len({item.id for item in items}) == len(items):
        return items
    first: dict[str, T] = {}
    for item in items:
        first.setdefault(item.id, item)
    return list(first.values())


def _keys(items: Sequence[Settlement], now: datetime) -> dict[str, Any]:
    return {
        "ids": text_array([item.id for item in items]),
        "tokens": text_array([item.token for item in items]),
        "starts": time_array([item.started_at for item in items]),
        "now": now,
    }

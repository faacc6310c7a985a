"""What an archive is about to prune, written down before it does: `_taskharbor/manifests/<id>.json` in the lake.

    planned ──▶ verified ──▶ pruning ──▶ done

Nothing is pruned for a manifest that is only planned. One that was verified and is not done belongs to an archive that
was interrupted: the next one verifies what is left of it, and finishes it first.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final

from taskharbor.pipeline.lake import Lake, LakeCorrupt

PLANNED: Final = "planned"
VERIFIED: Final = "verified"
PRUNING: Final = "pruning"
DONE: Final = "done"
STATES: Final = (PLANNED, VERIFIED, PRUNING, DONE)
VERSION: Final = 1
_PLACE: Final = "manifests"


@dataclass(frozen=True, slots=True)
class Side:
    """The rows of a day as one side has them. The checksum does not depend on their order."""

    rows: int = 0
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """One day of what is to be pruned, in the store and in the lake."""

    day: str
    store: Side
    lake: Side
    attempts: int = 0
    """In the store, apart from those that silver rejected; silver must have as many."""
    silver_attempts: int = 0

    def problem(self) -> str | None:
        """What is wrong with it, in a few words."""
        if self.store.rows != self.lake.rows:
            return f"{self.day}: the store has {self.store.rows:,} rows, bronze has {self.lake.rows:,} of them"
        if self.store.checksum != self.lake.checksum:
            return (
                f"{self.day}: {self.store.rows:,} rows on both sides, but bronze has other content "
                f"(checksum {self.store.checksum[-12:]} in the store, {self.lake.checksum[-12:]} in the lake)"
            )
        if self.attempts != self.silver_attempts:
            return (
                f"{self.day}: the store has {self.attempts:,} attempts, silver has {self.silver_attempts:,} of them, "
                "rejected ones apart"
            )
        return None


@dataclass
class Manifest:
    id: str
    store_id: str
    before: str
    """Jobs that ended before this moment."""
    upto: str
    """The cursor of the feed up to which the lake had taken everything in."""
    first: str = ""
    last: str = ""
    """Cursors: the first and the last row that go."""
    state: str = PLANNED
    jobs: int = 0
    rows: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    """How the jobs ended; `purged` were removed from the DLQ by hand, and leave only their history."""
    slices: list[Slice] = field(default_factory=list)
    pruned: int = 0
    left: int = 0
    """Jobs that were not to be pruned any more when their turn came."""
    problem: str = ""
    at: dict[str, str] = field(default_factory=dict)
    """When each state was reached."""
    version: int = VERSION

    def data(self) -> dict[str, Any]:
        return asdict(self)


def new_manifest(store_id: str, before: datetime, upto: str) -> Manifest:
    now = datetime.now(UTC)
    return Manifest(f"archive-{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}", store_id, before.isoformat(), upto)


def save(lake: Lake, manifest: Manifest, state: str | None = None) -> None:
    """Write it down, in this state if one is given."""
    if state is not None:
        manifest.state = state
    manifest.at.setdefault(manifest.state, datetime.now(UTC).isoformat(timespec="milliseconds"))
    lake.write_json(_name(manifest.id), manifest.data())


def remove(lake: Lake, manifest: Manifest) -> None:
    (lake.home / _name(manifest.id)).unlink(missing_ok=True)


def all_of(lake: Lake, store_id: str) -> Iterator[Manifest]:
    """Those of a store, the oldest first. Raises LakeCorrupt for one that cannot be understood."""
    for path in sorted((lake.home / _PLACE).glob("archive-*.json")):
        manifest = _read(lake, path.name)
        if manifest.store_id == store_id:
            yield manifest


def unfinished(lake: Lake, store_id: str) -> list[Manifest]:
    return [each for each in all_of(lake, store_id) if each.state != DONE]


def _name(id: str) -> str:
    return f"{_PLACE}/{id}.json"


def _read(lake: Lake, file_name: str) -> Manifest:
    data = lake.read_json(f"{_PLACE}/{file_name}")
    try:
        known = {each.name for each in fields(Manifest)}
        values = {name: value for name, value in data.items() if name in known}
        values["slices"] = [
            Slice(**{**each, "store": Side(**each["store"]), "lake": Side(**each["lake"])}) for each in data["slices"]
        ]
        manifest = Manifest(**values)
        if manifest.state not in STATES or manifest.version > VERSION:
            raise ValueError(f"state {manifest.state!r}, version {manifest.version}")
        datetime.fromisoformat(manifest.before)
    except (KeyError, TypeError, ValueError) as error:
        raise LakeCorrupt(
            f"{lake.home / _PLACE / file_name} cannot be understood ({error}): restore it from a backup; "
            "nothing was pruned"
        ) from None
    return manifest

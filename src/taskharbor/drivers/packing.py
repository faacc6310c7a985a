"""Jobs on their way from one store to another, as notes in the one that they have left.

A note has a bounded length on some stores, so the text is cut into pieces.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from taskharbor.core.carrying import Carrier, Row
from taskharbor.core.clock import from_micros, to_micros
from taskharbor.core.model import Job, Progress, Status

HEAD: Final = "carried"
PIECE: Final = 60_000
"""Characters of a note, all of them ASCII."""


class Bundle(NamedTuple):
    """Jobs that have left one store and may have arrived in the other: number `number` of its kind."""

    number: int
    rows: Sequence[Row]
    pieces: int


def pack(number: int, rows: Sequence[Row]) -> dict[str, str]:
    text = json.dumps([[_written(value) for value in job] for job, *_ in rows], separators=(",", ":"))
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    head = json.dumps({"number": number, "pieces": len(pieces)})
    return {HEAD: head, **{f"{HEAD}.{place}": piece for place, piece in enumerate(pieces)}}


def unpack(carrier: Carrier) -> Bundle | None:
    """What is on its way from this store."""
    head = carrier.note(HEAD)
    if head is None:
        return None
    found = json.loads(head)
    pieces = [carrier.note(f"{HEAD}.{place}") or "" for place in range(found["pieces"])]
    rows = [(Job(*map(_read, values)), None, None) for values in json.loads("".join(pieces))]
    return Bundle(found["number"], rows, found["pieces"])


def struck(pieces: int) -> Mapping[str, None]:
    """The notes of a bundle, to be removed."""
    return dict.fromkeys([HEAD, *(f"{HEAD}.{place}" for place in range(pieces))])


def pieces_of(notes: Mapping[str, str]) -> int:
    return len(notes) - 1


def _written(value: Any) -> Any:
    match value:
        case Status():
            return {"status": value.value}
        case bytes():
            return {"bytes": b64encode(value).decode()}
        case datetime():
            return {"time": to_micros(value)}
        case timedelta():
            return {"length": [value.days, value.seconds, value.microseconds]}
        case Progress():
            return {"progress": [value.done, value.total, value.note]}
        case Mapping():
            return {"map": dict(value)}
    return value


def _read(written: Any) -> Any:
    if not isinstance(written, dict):
        return written
    [(kind, value)] = written.items()
    match kind:
        case "status":
            return Status(value)
        case "bytes":
            return b64decode(value)
        case "time":
            return from_micros(value)
        case "length":
            return timedelta(*value)
        case "progress":
            return Progress(*value)
    return value

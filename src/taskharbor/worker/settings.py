"""What a worker may be told, checked where it is told and not where it is first used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import InvalidInput
from taskharbor.core.fleet import ANY_TYPE
from taskharbor.core.limits import MAX_DURATION, MAX_NAME, check_name
from taskharbor.core.model import DEFAULT_QUEUE

if TYPE_CHECKING:
    from taskharbor.app.harbor import Harbor

Queues = str | Sequence[str] | Mapping[str, int] | None

LONGEST_S: Final = MAX_DURATION.total_seconds()
MOST_OF_TYPES: Final = 4_000
"""How many characters of names of types a worker says it handles."""


def check_count(name: str, value: Any) -> None:
    """A whole number above zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, got {value!r}")


def check_seconds(name: str, value: Any, *, zero: bool = False) -> None:
    """A number of seconds above zero, or from zero on."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and (value > 0 or (zero and value == 0)) and value <= LONGEST_S):  # nan is none of these
        least = "of at least 0" if zero else "above 0"
        raise InvalidInput(f"{name} must be a number of seconds {least}, at most {LONGEST_S:,.0f}, got {value!r}")


def check_retention(value: Any) -> None:
    if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
        raise InvalidInput(
            f"retention must be a timedelta that is not negative, such as timedelta(days=30), got {value!r}: "
            "leave it out to keep jobs for ever"
        )


def chosen_types(types: Sequence[str] | None, take_all: bool, harbor: Harbor) -> tuple[str, ...] | None:
    """Only jobs that can be run here are claimed, unless the worker is told to take all."""
    if take_all:
        return None
    known = tuple(harbor.tasks if types is None else types)
    unknown = [name for name in known if name not in harbor.tasks]
    if unknown:
        raise InvalidInput(f"no task is named {unknown[0]!r}: known are {', '.join(sorted(harbor.tasks)) or 'none'}")
    if not known:
        raise InvalidInput("this harbor has no tasks: define some with @harbor.task, or use take_all=True")
    return known


def handled_types(types: Sequence[str] | None) -> dict[str, str]:
    """What the worker takes, for whoever asks why a job waits; nothing if it is too much to say."""
    said = ANY_TYPE if types is None else ",".join(types)
    return {"types": said} if len(said) <= MOST_OF_TYPES and not any("," in each for each in types or ()) else {}


def chosen_slots(queues: Queues, harbor: Harbor, concurrency: int) -> dict[str, int]:
    """How many handlers may run at once, by queue."""
    if queues is None:
        named = sorted({task.queue for task in harbor.tasks.values()} | {DEFAULT_QUEUE})
        return dict.fromkeys(named, concurrency)
    if isinstance(queues, str):
        queues = [queues]
    slots = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, concurrency)
    if not slots:
        raise InvalidInput("queues is empty: name at least one, or leave it out for all that the tasks name")
    for queue, count in slots.items():
        check_name(queue, "queue", MAX_NAME)
        check_count(f"the slots of queue {queue!r}", count)
    return slots

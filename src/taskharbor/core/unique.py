"""What becomes of a job whose key another job holds."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import Status

ON_DUPLICATE: Final = ("return", "raise", "replace")
MADE_OF_ARGUMENTS: Final = "unique:"
"""Keys that nobody gave begin with this, and keys of callers hardly do."""
WAITING: Final = frozenset({Status.READY})
ALWAYS: Final = frozenset(Status)


class Verdict(Enum):
    """On a newcomer whose key is held."""

    KEEP = "keep"
    """The holder stays as it is, and the newcomer is not stored."""
    REPLACE = "replace"
    """The holder, which has not begun, becomes what the newcomer is. It keeps its id."""
    INSERT = "insert"
    """The newcomer is stored, and the key is its own now."""


class Duplicates(NamedTuple):
    """How a newcomer wants its duplicates treated."""

    raises: bool = False
    while_in: frozenset[Status] | None = None
    """Where the holder must stand for the newcomer to count as a duplicate; None if that is all the same, and then
    the payloads must be equal."""
    replaces: bool = False

    def verdict(self, holder: Status | None) -> Verdict:
        """On a newcomer with `while_in`; `holder` is where the holder stands, None if it is gone."""
        assert self.while_in is not None
        if holder not in self.while_in:
            return Verdict.INSERT
        return Verdict.REPLACE if self.replaces and holder is Status.READY else Verdict.KEEP


KEEPS: Final = Duplicates()
RAISES: Final = Duplicates(raises=True)


def checked_duplicates(on_duplicate: str, while_in: Iterable[str] | None, key: str | None) -> Duplicates:
    if while_in is None and on_duplicate != "replace":
        if on_duplicate == "return":
            return KEEPS
        if on_duplicate == "raise":
            return RAISES
    if on_duplicate not in ON_DUPLICATE:
        raise InvalidInput(f"on_duplicate must be 'return', 'raise' or 'replace', got {on_duplicate!r}")
    if key is None:
        raise InvalidInput("while_in and on_duplicate='replace' go with an idempotency key: give the job one")
    return Duplicates(on_duplicate == "raise", _states(while_in), on_duplicate == "replace")


def _states(while_in: Iterable[str] | None) -> frozenset[Status]:
    if while_in is None:
        return WAITING
    known = {status.value: status for status in Status}
    if isinstance(while_in, str) and while_in in known:
        several = (Status.READY.value,) if while_in == Status.READY.value else (Status.READY.value, while_in)
        raise InvalidInput(f"while_in takes states of a job: write while_in={several!r}")
    if isinstance(while_in, str) or not all(state in known for state in while_in):
        raise InvalidInput(f"while_in takes states of a job, of {', '.join(known)}; got {while_in!r}")
    states = frozenset(known[state] for state in while_in)
    if Status.READY not in states:
        raise InvalidInput("while_in must have 'ready' in it: a job that waits is always a duplicate of the next")
    return states

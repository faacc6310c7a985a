"""The words between a worker and the processes of its handlers, as JSON: how a job ended, what it reports, what it is
told."""

from __future__ import annotations

import contextlib
import json
import time
from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any, Final

from taskharbor.core.errors import LeaseLost
from taskharbor.core.model import Progress
from taskharbor.core.outcome import Cancelled, Dead, Done, Ending, Failed, Released, Snoozed
from taskharbor.worker.batching import BatchRun
from taskharbor.worker.held import Held

LOOK_S: Final = 0.05
MOST_AT_ONCE: Final = 1_000
MOST_TOLD: Final = 16_384
"""Bytes of news for one batch. They wait in the pipe until the handler looks, and a pipe that is full would hold up
the slot."""


def spoken(ending: Ending) -> dict[str, Any]:
    match ending:
        case Done(result):
            return {"kind": "done", "result": None if result is None else b64encode(result).decode()}
        case Failed(error, delay, kind):
            delay_s = None if delay is None else delay.total_seconds()
            return {"kind": "failed", "error": error, "delay_s": delay_s, "error_kind": kind}
        case Snoozed(delay, reason):
            return {"kind": "snoozed", "delay_s": delay.total_seconds(), "reason": reason}
        case Cancelled(reason):
            return {"kind": "cancelled", "reason": reason}
        case Dead(reason, code):
            return {"kind": "dead", "reason": reason, "code": str(code)}
        case Released():
            return {"kind": "released"}


def heard(word: dict[str, Any], held: Held | BatchRun) -> Ending | None:
    """How the job ended, if that is what the word says; of a batch, how those ended that are left. Whatever else it
    says is taken down."""
    if isinstance(held, BatchRun) and "item" in word:
        member = held.members[word["item"]]
        ending = heard(word, member)
        if ending is not None and member.ending is None:
            member.settle(ending)
        return None
    match word["kind"]:
        case "progress" if isinstance(held, Held):
            held.progress(Progress(word["done"], word["total"], word["note"]))
        case "extend" if isinstance(held, Held):
            with contextlib.suppress(LeaseLost):  # the handler is about to be stopped
                held.extend(word["seconds"])
        case "done":
            return Done(None if word["result"] is None else b64decode(word["result"]))
        case "failed":
            delay = None if word["delay_s"] is None else timedelta(seconds=word["delay_s"])
            return Failed(word["error"], delay, word["error_kind"])
        case "snoozed":
            return Snoozed(timedelta(seconds=word["delay_s"]), word["reason"])
        case "cancelled":
            return Cancelled(word["reason"])
        case "dead":
            return Dead(word["reason"], word["code"])
        case _:  # put back; of a batch, whose members have all been heard of, that it is over
            return Released()
    return None


class Told:
    """What the handler of a batch is told of single members while it runs: that they are to stop, or are lost."""

    def __init__(self, run: BatchRun) -> None:
        self._run = run
        self._known: set[int] = set()
        self._bytes = 0
        self._look_at = 0.0

    def news(self) -> bytes | None:
        """What there is to tell now. A look at all of them is not for every turn."""
        moment = time.monotonic()
        if moment < self._look_at or self._bytes > MOST_TOLD:
            return None
        self._look_at = moment + LOOK_S
        members = self._run.members
        new = [number for number, member in enumerate(members) if member.cancelled and number not in self._known]
        new = new[:MOST_AT_ONCE]
        if not new:
            return None
        self._known.update(new)
        lost = [number for number in new if members[number].lost]
        said = json.dumps({"stop": [number for number in new if not members[number].lost], "lost": lost}).encode()
        self._bytes += len(said)
        return said

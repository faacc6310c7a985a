"""`taskharbor enqueue --many`: a file of any length, in bounded memory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from taskharbor.cli.enqueue import is_there
from taskharbor.cli.output import ProgressBar, in_one_line, print_json
from taskharbor.cli.streams import standard_input
from taskharbor.cli.template import Template
from taskharbor.core.contract import Driver
from taskharbor.core.errors import DuplicateJob, IdempotencyConflict, InvalidInput
from taskharbor.core.model import NewJob

CHUNK_LINES: Final = 1_000
CHUNK_BYTES: Final = 8 * 2**20
LONGEST_LINE: Final = 32 * 2**20
MOST_COMPLAINTS: Final = 20


@dataclass
class Tally:
    lines: int = 0
    enqueued: int = 0
    existed: int = 0
    bad: int = 0
    held_back: int = 0
    """Good lines that were not enqueued, because a line of their chunk was bad."""
    errors: list[dict[str, Any]] = field(default_factory=list)

    def complain(self, line: int, problem: str) -> None:
        self.bad += 1
        if len(self.errors) < MOST_COMPLAINTS:
            self.errors.append({"line": line, "error": problem})
            print(f"taskharbor: line {line}: {in_one_line(problem)}", file=sys.stderr)
        elif self.bad == MOST_COMPLAINTS + 1:
            print("taskharbor: and more lines like these", file=sys.stderr)


def enqueue_many(driver: Driver, template: Template, arguments: argparse.Namespace) -> int:
    tally = Tally()
    build = template.enveloped if arguments.envelope else template.job
    with _lines_of(arguments.many) as stream, ProgressBar("enqueued") as bar:
        for chunk in _chunks(stream, tally):
            jobs: list[tuple[int, NewJob]] = []
            bad_before = tally.bad
            now = driver.now()
            for number, line in chunk:
                if line is None:
                    tally.complain(number, f"longer than {LONGEST_LINE:,} bytes")
                    continue
                try:
                    jobs.append((number, build(line, now)))
                except InvalidInput as error:
                    tally.complain(number, " ".join(str(error).split()))
            if tally.bad == bad_before:
                _store(driver, jobs, tally)
            else:
                tally.held_back += len(jobs)
            bar.advance(len(chunk))
    return _report(tally, arguments)


def _store(driver: Driver, jobs: list[tuple[int, NewJob]], tally: Tally) -> None:
    try:
        answers = driver.enqueue([job for _, job in jobs])
    except (InvalidInput, IdempotencyConflict) as error:
        number = _culprit(driver, jobs, error)
        said = is_there(error) if isinstance(error, DuplicateJob) else str(error)
        tally.complain(number, " ".join(said.split()))
        tally.held_back += len(jobs) - 1
        return
    existed = sum(answer.existed for answer in answers)
    tally.existed += existed
    tally.enqueued += len(answers) - existed


def _culprit(driver: Driver, jobs: list[tuple[int, NewJob]], error: Exception) -> int:
    """The line that the store would not take. Checks that need no store are made again one by one; a key that is
    taken names itself in the message."""
    from taskharbor.core.intake import admit
    from taskharbor.core.limits import Limits

    limits = getattr(driver, "limits", None) or Limits()
    now = driver.now()
    for number, job in jobs:
        if isinstance(error, IdempotencyConflict):
            if job.idempotency_key is not None and repr(job.idempotency_key) in str(error):
                return number
            continue
        try:
            admit([job], now, limits)
        except InvalidInput:
            return number
    return jobs[0][0]


@contextmanager
def _lines_of(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield standard_input()
        return
    try:
        stream = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise InvalidInput(f"cannot read {name}: {error.strerror}") from None
    with stream:
        yield stream


def _chunks(stream: IO[bytes], tally: Tally) -> Iterator[list[tuple[int, bytes | None]]]:
    """Numbered lines, some at a time; None for one that is too long. Empty lines are passed over."""
    chunk: list[tuple[int, bytes | None]] = []
    size = 0
    number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        whole = line.endswith(b"\n") or len(line) < LONGEST_LINE
        if not whole:
            while (rest := stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if whole and not line.strip():
            continue
        tally.lines += 1
        chunk.append((number, line if whole else None))
        size += len(line)
        if len(chunk) >= CHUNK_LINES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _report(tally: Tally, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json(
            {
                "lines": tally.lines,
                "enqueued": tally.enqueued,
                "existed": tally.existed,
                "bad": tally.bad,
                "held_back": tally.held_back,
                "errors": tally.errors,
            }
        )
    else:
        said = f"{tally.enqueued:,} enqueued"
        if tally.existed:
            said += f", {tally.existed:,} were there already"
        if tally.bad:
            said += (
                f", {tally.bad:,} bad, {tally.held_back:,} held back because of them: mend the lines and run it again"
            )
        print(said)
    return 1 if tally.bad else 0

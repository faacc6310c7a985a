"""What the doctor finds."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    level: str
    """`ok`, `warning` or `problem`."""
    check: str
    said: str
    cure: str = ""


def ok(check: str, said: str) -> Finding:
    return Finding("ok", check, said)


def warning(check: str, said: str, cure: str) -> Finding:
    return Finding("warning", check, " ".join(said.split()), cure)


def problem(check: str, said: str, cure: str) -> Finding:
    return Finding("problem", check, " ".join(said.split()), cure)

"""What a child written in Python says to children.py."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ADDRESS = "TASKHARBOR_BENCH_ADDRESS"


def address() -> str:
    """Of the store to work on."""
    return os.environ[ADDRESS]


def tell(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def told_to_go() -> None:
    """Say that the work can begin, and wait for the word."""
    tell(ready=True)
    sys.stdin.readline()


def until_end_of_input() -> None:
    sys.stdin.read()

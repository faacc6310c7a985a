"""Paths at which no store can be, whoever asks and however often."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from taskharbor.core.errors import StoreRefused

_IMPOSSIBLE: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR})


def impossible(error: OSError, path: str | Path) -> StoreRefused | None:
    """The error to raise where the system has said that there cannot be anything at the path."""
    if error.errno not in _IMPOSSIBLE:
        return None
    return StoreRefused(f"no store can be at {path} ({error.strerror}): correct the path")


def is_there(path: str | Path) -> bool:
    """Whether something is at the path. Nothing can be at one that the system does not take."""
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def impossible_at(path: str) -> StoreRefused | None:
    """The same where it was not the system that has spoken. Only looks at the path, and opens nothing."""
    try:
        os.stat(path)
    except OSError as error:
        return impossible(error, path)
    return None

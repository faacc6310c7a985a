"""What the operating system refuses, in our own words."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from taskharbor.core.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from taskharbor.drivers.paths import impossible

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def store_error(error: OSError, directory: Path) -> StoreError:
    """The error to raise for a failed write. Nothing of the call was kept."""
    if wrong := impossible(error, directory):
        return wrong
    if error.errno in _FULL:
        return StoreFull(
            f"no room to write to the JSON store {directory} ({error.strerror}): free some space and try again; "
            "nothing was changed"
        )
    if error.errno in _READ_ONLY:
        return StoreReadOnly(
            f"the JSON store {directory} cannot be written ({error.strerror}): check its owner, its permissions and "
            "how it is mounted; nothing was changed"
        )
    return StoreUnavailable(f"the JSON store {directory} failed ({error}): check the disk, then try again")


def unreadable(error: OSError, directory: Path) -> StoreError:
    """The error to raise for a failed read."""
    return impossible(error, directory) or StoreUnavailable(
        f"the JSON store {directory} cannot be read ({error}): check its owner and permissions"
    )

"""The disk under an embedded store: what kind it is, and how much room is left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskharbor.cli.findings import Finding, ok, problem, warning
from taskharbor.cli.store import store_path
from taskharbor.drivers.paths import is_there

if TYPE_CHECKING:
    from taskharbor.drivers.opening import StoreURL

MOUNTS: Final = Path("/proc/self/mounts")
NETWORK: Final = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs"),
    *("vboxsf", "prl_fs", "ncpfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph"),
    "fuse.juicefs",
)
FLEETING: Final = frozenset({"tmpfs", "ramfs"})
LITTLE_BYTES: Final = 1024**3
NOTHING_BYTES: Final = 100 * 1024**2


def examine(url: StoreURL) -> Iterator[Finding]:
    path = store_path(url)
    if path is None:
        if url.scheme == "memory":
            yield ok("disk", "none: the jobs live as long as the process")
        return
    place = next(parent for parent in (path, *path.parents) if is_there(parent))
    yield file_system(kind_at(place))
    yield room(shutil.disk_usage(place).free)
    if place == path:
        yield _writable(url, path)


def _writable(url: StoreURL, path: Path) -> Finding:
    """Asked, and not tried. SQLite makes files beside its own, so that the directory counts too."""
    if url.options.get("mode") == "ro":
        return problem(
            "writable", "no: the URL says mode=ro", "leave mode=ro out of the URL, unless all are to read only"
        )
    effective = os.access in os.supports_effective_ids
    for place in (path, path.parent) if url.scheme == "sqlite" else (path,):
        if not os.access(place, os.W_OK, effective_ids=effective):
            cure = "give this user the right to write there, or run this as one who has it"
            return problem("writable", f"no: this user may not write to {place}", cure)
    return ok("writable", "by this user")


def kind_at(place: Path, mounts: Path = MOUNTS) -> str:
    """The type of the file system there, as Linux calls it; "" where that cannot be known."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    real = place.resolve()
    best, kind = -1, ""
    for line in lines:
        fields = line.split()
        # Spaces and the like in a mount point are written as octal escapes.
        point = Path(fields[1].encode("latin-1", "replace").decode("unicode_escape"))
        if (real == point or point in real.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind


def file_system(kind: str) -> Finding:
    if kind in NETWORK:
        cure = "move the store to a local disk, or use PostgreSQL or MariaDB for several machines"
        return problem("file system", f"{kind} is a network file system, whose locks cannot be trusted", cure)
    if kind in FLEETING:
        return warning("file system", f"{kind} is gone after a restart", "move the store to a disk, if the jobs matter")
    return ok("file system", kind or "could not be told here")


def room(free: int) -> Finding:
    said = f"{free / 1024**3:.1f} GiB free"
    if free < NOTHING_BYTES:
        return problem("disk", said, "make room: without any, nothing can be enqueued or settled")
    if free < LITTLE_BYTES:
        return warning("disk", said, "make room before it is needed")
    return ok("disk", said)

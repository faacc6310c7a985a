"""`store.json`: every table of the store at the start of a generation, written in one piece or not at all."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from taskharbor.core.errors import HOW_TO_MIGRATE, SchemaMissing, SchemaTooNew, StoreCorrupt
from taskharbor.drivers import lines, threads
from taskharbor.drivers.jsonfile import records
from taskharbor.drivers.jsonfile.failures import unreadable
from taskharbor.drivers.state import TABLES, State

FORMAT: Final = "taskharbor-json"
VERSION: Final = 3
"""2 has limits, fair queues and workflows, 3 has tokens. A store is written as the least that has all it uses, so that
older versions can read it."""
NEW_TABLES: Final = {**dict.fromkeys(("notes", *lines.TABLES, *threads.TABLES), 2), "tokens": 3}
"""Tables that 1 does not have, and which does."""
FILE_NAME: Final = "store.json"
_TEMPORARY: Final = "store.json.new"
_OTHER_STORE: Final = "jobs.json"
_OWN_NAME: Final = re.compile(r"store\.json(\.new)?|lock|journal-\d+\.jsonl.*|lost\+found|\..*")

Identity = tuple[int, ...]
"""Tells whether the file is still the one that was read."""


class Snapshot(NamedTuple):
    state: State
    generation: int
    size: int
    identity: Identity
    version: int


def identity(directory: Path) -> Identity | None:
    """Of the snapshot that is there now; None when there is none."""
    try:
        status = os.stat(directory / FILE_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(error, directory) from error
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def read(directory: Path) -> Snapshot:
    """The snapshot, checked. SchemaMissing if there is no store, StoreCorrupt if there is something else."""
    found = identity(directory)
    if found is None:
        raise missing(directory)
    path = directory / FILE_NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(error, directory) from error
    head, _, body = data.partition(b"\n")
    header = _checked_header(path, data, head)
    if header.pop("crc32", None) != _checksum(header, body):
        raise StoreCorrupt(
            f"{path} is torn, or something else than TaskHarbor has changed it (checksum): restore it from a backup"
        )
    try:
        state = State()
        state.store_id = header["store_id"]
        for table, rows in json.loads(data)["tables"].items():
            for raw_key, record in rows:
                key = records.decode_key(table, raw_key)
                state.put(table, key, records.decode(table, key, record, state))
        state.last_sequence = max(state.last_sequence, header["last_sequence"])
        return Snapshot(state, header["generation"], len(data), found, header["version"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreCorrupt(f"{path} holds a row that cannot be understood ({error!r}): restore a backup") from error


def _checked_header(path: Path, data: bytes, head: bytes) -> dict[str, Any]:
    """What the file says it is. The first line suffices, even when the rest is torn; but other tools and other
    versions may have laid it out differently."""
    header: Any = None
    for text in (head + b"null}", data):
        with suppress(ValueError, RecursionError):
            header = json.loads(text)
            break
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        what = "empty" if not data.strip(b"\0 \n") else "no TaskHarbor store"
        raise StoreCorrupt(
            f"{path} is {what}: restore it from a backup, or point json:// at another directory "
            "(to start over, move the file away)"
        )
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise StoreCorrupt(f"{path} has the format version {version!r}, which never was: restore it from a backup")
    if version > VERSION:
        raise SchemaTooNew(
            f"{path} has format version {version}, this TaskHarbor knows {VERSION}: upgrade TaskHarbor to use it"
        )
    header.pop("tables", None)
    return header


def missing(directory: Path) -> SchemaMissing | StoreCorrupt:
    """What it means that there is no snapshot: no store yet, or something that must not be taken for one."""
    if directory.exists() and not directory.is_dir():
        return StoreCorrupt(
            f"{directory} is a file, but a JSON store is a directory: point json:// at one. "
            "If the file is the jobs.json of another queue, it is data to import, and no store"
        )
    if (directory / _OTHER_STORE).exists():
        return StoreCorrupt(
            f"{directory / _OTHER_STORE} belongs to another queue. It is data to import, and no TaskHarbor store: "
            "point json:// at another directory"
        )
    if others := _foreign_names(directory):
        return StoreCorrupt(
            f"{directory} holds no store but other files ({', '.join(others[:3])}{', …' if others[3:] else ''}): "
            "point json:// at a directory that is empty or does not exist yet"
        )
    return SchemaMissing(f"no JSON store at {directory}: {HOW_TO_MIGRATE}")


def _foreign_names(directory: Path) -> list[str]:
    """What lies in the directory and is not from us. Hidden files, and what a file system puts there, do not count."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []  # not there, or not to be looked into: whoever opens the files will say so
    return [name for name in names if not _OWN_NAME.fullmatch(name)]


def write(directory: Path, state: State, generation: int) -> None:
    """Replace the snapshot. Whatever happens on the way, either the old or the new one is there, whole."""
    header = {
        "format": FORMAT,
        "version": needed_version(state),
        "store_id": state.store_id,
        "generation": generation,
        "last_sequence": state.last_sequence,
    }
    body = "".join(_body(state)).encode()
    head = json.dumps(header | {"crc32": _checksum(header, body)})[:-1] + ', "tables": '
    temporary = directory / _TEMPORARY
    write_durably(temporary, head.encode() + b"\n" + body)
    sync_directory(directory)
    os.rename(temporary, directory / FILE_NAME)
    sync_directory(directory)


def needed_version(state: State) -> int:
    used = [version for table, version in NEW_TABLES.items() if getattr(state, table)]
    fair = any(queue.fair or queue.weights for queue in state.queues.values())
    return max([1, 2 if fair else 1, *used])


def _body(state: State) -> Iterator[str]:
    """One row a line, so that people can look inside with the tools they have."""
    separator = "{"
    for table in TABLES:
        if table in NEW_TABLES and not getattr(state, table):
            continue
        yield f'{separator}"{table}": ['
        comma = "\n"
        for key, value in getattr(state, table).items():
            yield comma + json.dumps([key, records.encode(table, value, state)], separators=(",", ":"))
            comma = ",\n"
        yield "]"
        separator = ",\n"
    yield "}}\n"


def _checksum(header: dict[str, Any], body: bytes) -> str:
    return f"{zlib.crc32(body, zlib.crc32(json.dumps(header, sort_keys=True).encode())):08x}"


def write_durably(path: Path, data: bytes) -> None:
    """A new file with exactly this content, on disk before this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """A disk that is almost full takes a part first and refuses the rest only when asked again."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def sync_directory(directory: Path) -> None:
    """Makes names in the directory (created, renamed, removed) survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""What the JSON driver says when its files are damaged, foreign, missing, or cannot be written."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.json_stores import contents, files, journal_of

from taskharbor.core.errors import (
    SchemaMissing,
    SchemaTooNew,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from taskharbor.drivers.jsonfile import JsonDriver, snapshot
from taskharbor.drivers.jsonfile import driver as driver_module
from taskharbor.testing.helpers import add, everything, leased_job, new_job, take_ids
from taskharbor.testing.times import MINUTE, NOON, SECOND


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def driver(directory: Path) -> Iterator[JsonDriver]:
    with JsonDriver(directory) as driver:
        driver.migrate()
        yield driver


# --- Refusals ------------------------------------------------------------------------------------------------


def test_a_missing_store_is_refused_and_left_missing(directory: Path) -> None:
    with JsonDriver(directory) as driver:
        with pytest.raises(SchemaMissing, match="taskharbor --url … migrate"):
            add(driver)
        with pytest.raises(SchemaMissing, match=re.escape(str(directory))):
            driver.counts()
        assert not directory.exists()
        directory.mkdir()
        with pytest.raises(SchemaMissing):
            driver.counts()
        assert not list(directory.iterdir())


def foreign(text: str) -> Callable[[Path], None]:
    return lambda directory: (directory / "store.json").write_text(text) and None


def torn_snapshot(directory: Path) -> None:
    path = directory / "store.json"
    os.truncate(path, path.stat().st_size - 3)


def edited_snapshot(directory: Path) -> None:
    path = directory / "store.json"
    path.write_bytes(path.read_bytes().replace(b'"leaders"', b'"Leaders"'))


def reformatted_snapshot(directory: Path) -> None:
    path = directory / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2))


def snapshot_lost(directory: Path) -> None:
    (directory / "store.json").unlink()


def journal_lost(directory: Path) -> None:
    journal_of(directory).unlink()


def journal_emptied(directory: Path) -> None:
    os.truncate(journal_of(directory), 0)


def journal_damaged(directory: Path) -> None:
    lines = journal_of(directory).read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"ready"', b'"Ready"')
    journal_of(directory).write_bytes(b"".join(lines))


def journal_line_missing(directory: Path) -> None:
    lines = journal_of(directory).read_bytes().splitlines(keepends=True)
    journal_of(directory).write_bytes(b"".join(lines[:1] + lines[2:]))


def journal_of_another_store(directory: Path) -> None:
    with JsonDriver(directory.parent / "another") as other:
        other.migrate()
        add(other)
    shutil.copy(journal_of(directory.parent / "another"), journal_of(directory))


def changed_journal(change: Callable[[bytes, int], bytes], *, unmarked: bool = False) -> Callable[[Path], None]:
    """`change` is given the journal and where its last line begins. `unmarked` as if the length was never noted."""

    def damage(directory: Path) -> None:
        data = journal_of(directory).read_bytes()
        journal_of(directory).write_bytes(change(data, data.rindex(b"\n", 0, -1) + 1))
        if unmarked:
            (directory / "lock").write_bytes(b"")

    return damage


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (foreign(""), "is empty.*backup"),
    (foreign("\0\0\0\0"), "is empty"),
    (foreign("[]"), "no TaskHarbor store"),
    (foreign('{"jobs": [], "dlq": []}'), "no TaskHarbor store.*another directory"),
    (foreign("not JSON"), "no TaskHarbor store"),
    (foreign('{"format": "taskharbor-json", "version": "one"}'), "'one'.*never was"),
    (torn_snapshot, "torn.*backup"),
    (edited_snapshot, "checksum.*backup"),
    (reformatted_snapshot, "checksum.*backup"),
    (snapshot_lost, "store.json beside it is missing.*backup"),
    (journal_lost, "journal-1.jsonl is missing.*backup"),
    (journal_emptied, "(has no beginning|became shorter).*backup"),
    (journal_damaged, "damaged at byte [1-9].*backup"),
    (journal_line_missing, "damaged at byte [1-9].*backup"),
    (journal_of_another_store, "another store.*backup"),
    (changed_journal(lambda data, last: data[:last]), "ends at byte [0-9]+, but.*up to byte"),
    (changed_journal(lambda data, last: data[: last + 20]), "ends at byte.*backup"),
    (changed_journal(lambda data, _: data[:-1]), "ends at byte [0-9]+.*`lock`"),
    (changed_journal(lambda data, _: data[:-1] + b"K"), "ends at byte.*up to"),
    (changed_journal(lambda data, last: data[: last + 30] + b"~" + data[last + 31 :], unmarked=True), "damaged at"),
    (changed_journal(lambda data, last: data[:last] + bytes(len(data) - last), unmarked=True), "damaged at byte [1-9]"),
    (changed_journal(lambda data, _: data[:300] + bytes(len(data) - 300), unmarked=True), "damaged at byte.*not as"),
    (changed_journal(lambda data, last: data + data[last:], unmarked=True), "damaged at byte.*interrupted"),
    (changed_journal(lambda data, _: data + b"x\n", unmarked=True), r"damaged at byte [0-9]+ \(checksum"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE, ids=[f"{m}" for _, m in DAMAGE])
def test_damage_is_a_clear_error_and_never_an_empty_store(
    driver: JsonDriver, directory: Path, damage: Callable[[Path], None], message: str
) -> None:
    for number in range(3):
        add(driver, id=f"job-{number}")
    driver.close()
    damage(directory)
    before = files(directory)
    with JsonDriver(directory) as reopened:
        for call in (reopened.counts, lambda: add(reopened), reopened.migrate):
            with pytest.raises(StoreCorrupt, match=message):
                call()
    assert files(directory) == before


def test_damage_is_noticed_by_a_driver_that_has_the_store_open(driver: JsonDriver, directory: Path) -> None:
    add(driver)
    (directory / "store.json").write_text("{}")
    with pytest.raises(StoreCorrupt, match="no TaskHarbor store"):
        driver.counts()


def test_a_journal_cut_while_a_driver_has_it_open_is_noticed_even_at_the_length_it_knows(
    driver: JsonDriver, directory: Path
) -> None:
    add(driver, id="a")
    length = journal_of(directory).stat().st_size
    with JsonDriver(directory) as other:
        add(other, id="b")
    os.truncate(journal_of(directory), length)
    for call in (driver.counts, lambda: add(driver)):
        with pytest.raises(StoreCorrupt, match="ends at byte"):
            call()
    # What the message says for somebody who means it.
    (directory / "lock").unlink()
    assert everything(driver).keys() == {"a"}


def test_an_older_generation_put_back_is_noticed(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(driver, id="a")
    old = files(directory)
    monkeypatch.setattr(driver_module, "SMALLEST_COMPACTION", 1)
    with JsonDriver(directory) as compacting:
        for id in "bcdefghi":
            add(compacting, id=id)
    journal_of(directory).unlink()
    for name, data in old.items():
        (directory / name).write_bytes(data)
    with JsonDriver(directory) as reopened, pytest.raises(StoreCorrupt, match="older backup"):
        reopened.counts()


def test_the_jobs_file_of_another_queue_is_data_to_import_and_no_store(directory: Path) -> None:
    directory.mkdir()
    (directory / "jobs.json").write_text('{"jobs": [{"id": "1", "status": "pending"}], "dlq": []}')
    for path in (directory, directory / "jobs.json"):
        with JsonDriver(path) as driver:
            for call in (driver.counts, lambda: add(driver), driver.migrate):
                with pytest.raises(StoreCorrupt, match=r"jobs\.json.*data to import"):
                    call()
    assert [path.name for path in directory.iterdir()] == ["jobs.json"]


def test_a_directory_with_other_files_is_not_taken_for_a_new_store(directory: Path) -> None:
    directory.mkdir()
    (directory / "report.txt").write_text("mine")
    with JsonDriver(directory) as driver:
        for call in (driver.counts, lambda: add(driver), driver.migrate):
            with pytest.raises(StoreCorrupt, match=r"other files \(report\.txt\): point json:// at a directory"):
                call()
    assert [path.name for path in directory.iterdir()] == ["report.txt"]


def test_hidden_files_and_what_a_broken_off_migration_left_are_no_hindrance(directory: Path) -> None:
    directory.mkdir()
    for name in (".gitignore", "lost+found", "lock", "store.json.new"):
        (directory / name).touch()
    with JsonDriver(directory) as driver:
        driver.migrate()
        (directory / "notes.txt").touch()  # beside a store, anything may lie
        assert add(driver)


def test_a_store_of_a_newer_version_asks_for_an_upgrade(driver: JsonDriver, directory: Path) -> None:
    driver.close()
    path = directory / "store.json"
    newer = f'"version": {snapshot.VERSION + 1}'.encode()
    path.write_bytes(path.read_bytes().replace(b'"version": 1', newer))
    with JsonDriver(directory) as older:
        for call in (older.counts, older.migrate):
            with pytest.raises(SchemaTooNew, match="upgrade TaskHarbor"):
                call()


# --- Writes that fail ------------------------------------------------------------------------------------------


@contextmanager
def failing_writes(monkeypatch: pytest.MonkeyPatch, code: int, after: int = 0) -> Iterator[None]:
    """Every write stops after `after` bytes with the error `code`."""
    real = os.pwrite

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        if bytes(data[:7]) == b"process":
            return real(descriptor, data, offset)
        if after and len(data) > after:
            return real(descriptor, data[:after], offset)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        yield


@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EROFS, StoreReadOnly), (errno.EIO, StoreUnavailable)],
)
@pytest.mark.parametrize("after", [0, 50])
def test_a_write_that_fails_changes_nothing_on_disk_or_in_memory(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception], after: int
) -> None:
    leased = leased_job(driver, id="a")
    add(driver, id="b")
    before, bytes_before = contents(directory), files(directory)
    with failing_writes(monkeypatch, code, after):
        for call in (
            lambda: driver.enqueue([new_job(id=f"c{n}") for n in range(50)], NOON),
            lambda: driver.ack("a", leased.lease.token, now=NOON),
            lambda: driver.reserve("default", now=NOON),
            lambda: driver.recover(NOON + MINUTE),
        ):
            with pytest.raises(error, match=re.escape(str(directory))):
                call()
        assert driver.get("b").status == "ready"
    assert contents(directory) == before
    assert files(directory) == bytes_before
    assert take_ids(driver) == ["b"]
    driver.ack("a", leased.lease.token, now=NOON + SECOND)


@pytest.mark.process
def test_a_real_limit_on_the_size_of_files_is_a_full_store(driver: JsonDriver, directory: Path) -> None:
    add(driver, id="a")
    code = f"""
import resource
from taskharbor import NewJob, StoreFull
from taskharbor.drivers.jsonfile import JsonDriver
store = JsonDriver({str(directory)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY))
try:
    store.enqueue([NewJob("t", b"x" * 5_000, id="b")])
except StoreFull as error:
    print(error)
store.enqueue([NewJob("t", b"x", id="c")])
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "free some space and try again" in output
    assert everything(driver).keys() == {"a", "c"}


def test_a_compaction_that_fails_fails_no_operation_and_is_not_tried_at_every_turn(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "SMALLEST_COMPACTION", 1_000)
    tries = 0

    def full(*_: Any) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, JsonDriver(directory) as other:
        patch.setattr(driver_module.snapshot, "write", full)
        for number in range(20):
            add(other, id=f"{number:02}")
        assert 1 <= tries <= 6
    assert take_ids(driver) == [f"{number:02}" for number in range(20)]
    assert len(list(directory.glob("journal-*"))) == 1


def test_a_store_that_can_only_be_read_can_be_read(
    driver: JsonDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(driver, id="a")
    before = files(directory)
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        # Permissions do not stop root, who may be running this.
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    with JsonDriver(directory) as reader:
        reader.migrate()
        assert reader.get("a").status == "ready"
        for call in (lambda: add(reader), lambda: reader.reserve("default", now=NOON)):
            with pytest.raises(StoreReadOnly, match="permissions"):
                call()
        assert reader.counts()["ready"] == 1
    with JsonDriver(directory.parent / "new") as missing, pytest.raises(StoreReadOnly):
        missing.migrate()
    assert files(directory) == before

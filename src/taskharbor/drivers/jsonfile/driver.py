"""The JSON driver: the in-process engine on a directory that several processes may share, one at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from taskharbor.core.contract import Leased, Listener, Settled
from taskharbor.core.errors import SchemaMissing, StoreCorrupt, StoreUnavailable, TaskHarborError
from taskharbor.core.limits import Limits
from taskharbor.core.model import Settlement
from taskharbor.drivers.engine import EngineDriver
from taskharbor.drivers.jsonfile import journal as journals
from taskharbor.drivers.jsonfile import lock, mark, records, snapshot
from taskharbor.drivers.jsonfile.failures import store_error, unreadable
from taskharbor.drivers.jsonfile.journal import Change, Journal
from taskharbor.drivers.jsonfile.listening import JsonListener
from taskharbor.drivers.state import State

SMALLEST_COMPACTION: Final = 1_048_576
"""A journal shorter than this is not worth a new snapshot, however small the old one is."""

NEEDS: Final = {**snapshot.NEW_TABLES, "queues": 2}
"""The version of the format that a change of a table may need."""

_open_drivers: WeakSet[JsonDriver] = WeakSet()


class JsonDriver(EngineDriver):
    """Every operation holds the store's lock, reads what others did meanwhile, and is on disk when it returns.

    A second process waits at most `wait_s` for its turn and then hears StoreUnavailable.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits | None = None, wait_s: float = 30.0) -> None:
        super().__init__(limits=limits)
        self._directory = Path(path).absolute()
        self._wait_s = wait_s
        self._postponed = 0
        self._forget()
        self._begin_process()
        _open_drivers.add(self)

    def _begin_process(self) -> None:
        self._mutex = threading.RLock()
        self._depth = 0
        self._lock = -1

    def _forget(self) -> None:
        """Drop what is in memory; the next operation reads it again from disk, where the truth is."""
        self._state: State | None = None
        self._journal: Journal | None = None
        self._generation = 0
        self._version = 0
        self._identity: snapshot.Identity | None = None
        self._compact_at = SMALLEST_COMPACTION
        self._changes: list[Change] = []

    # --- Life ----------------------------------------------------------------------------------------------

    def migrate(self) -> None:
        self._check_open()
        try:
            # A store that is there already may be one that this process can only read.
            with self._turn(exclusive=False):
                self._refresh(mend=False)
            return
        except SchemaMissing:
            pass
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise store_error(error, self._directory) from error
        with self._turn(exclusive=True, create=True):
            try:
                self._refresh(mend=True)
            except SchemaMissing:
                self._create()

    def _create(self) -> None:
        state = State()
        try:
            journals.create(self._directory, state.store_id, 1)
            snapshot.write(self._directory, state, 1)
        except OSError as error:
            raise store_error(error, self._directory) from error
        self._refresh(mend=True)

    def _listen(self, queues: tuple[str, ...]) -> Listener:
        return JsonListener(self._directory)

    def _close(self) -> None:
        with self._mutex:
            if self._journal is not None:
                self._journal.close()
            self._forget()

    # --- One operation ---------------------------------------------------------------------------------------

    def _reading(self) -> AbstractContextManager[State]:
        return self._operation(exclusive=False)

    def _writing(self) -> AbstractContextManager[State]:
        return self._operation(exclusive=True)

    @contextmanager
    def _operation(self, *, exclusive: bool) -> Iterator[State]:
        with self._turn(exclusive=exclusive):
            if self._depth > 1:
                # Part of a larger operation, which commits as a whole.
                assert self._state is not None
                yield self._state
                return
            state = self._refresh(mend=exclusive)
            state.on_change = self._note
            try:
                yield state
                if self._changes:
                    self._commit()
            except BaseException as error:
                if self._changes or not isinstance(error, TaskHarborError):
                    self._reset()
                raise
            finally:
                state.on_change = None

    @contextmanager
    def _turn(self, *, exclusive: bool, create: bool = False) -> Iterator[None]:
        """This thread's turn in this process, and this process's turn at the store."""
        if not self._mutex.acquire(timeout=self._wait_s):
            raise StoreUnavailable(f"waited {self._wait_s:g} s for another thread to finish with {self._directory}")
        try:
            self._check_open()
            self._depth += 1
            try:
                if self._depth > 1:
                    yield
                else:
                    # Only where a store is, or is to be: looking into a wrong directory leaves nothing behind.
                    create = create or snapshot.identity(self._directory) is not None
                    with lock.held(self._directory, exclusive=exclusive, create=create, wait_s=self._wait_s) as held:
                        self._lock = held
                        yield
            finally:
                self._depth -= 1
        finally:
            self._mutex.release()

    def _refresh(self, *, mend: bool) -> State:
        """The state as it is on disk now."""
        try:
            if self._state is None or self._journal is None or snapshot.identity(self._directory) != self._identity:
                return self._load(mend=mend)
            self._journal.catch_up(mark.read(self._lock), mend=mend)
        except OSError as error:
            self._reset()
            raise (store_error if mend else unreadable)(error, self._directory) from error
        except BaseException:
            self._reset()
            raise
        return self._state

    def _load(self, *, mend: bool) -> State:
        self._reset()
        try:
            kept = snapshot.read(self._directory)
        except SchemaMissing:
            self._refuse_orphaned_journals()
            raise
        journal = Journal(self._directory, kept.state, kept.generation)
        try:
            journal.catch_up(mark.read(self._lock), mend=mend)
        except BaseException:
            journal.close()
            raise
        if mend:
            self._remove_other_journals(kept.generation)
        self._state, self._journal = kept.state, journal
        self._generation, self._identity, self._version = kept.generation, kept.identity, kept.version
        self._compact_at = max(SMALLEST_COMPACTION, kept.size, self._postponed)
        return kept.state

    def _reset(self) -> None:
        if self._journal is not None:
            self._journal.close()
        self._forget()

    def _refuse_orphaned_journals(self) -> None:
        """A journal without its snapshot is a store that lost a file, unless it is what a crashed `migrate` left."""
        for generation, path in journals.generations(self._directory).items():
            if generation > 1 or path.read_bytes().count(b"\n") > 1:
                raise StoreCorrupt(
                    f"{path} has operations, but {snapshot.FILE_NAME} beside it is missing: "
                    "restore the directory from a backup"
                )

    def _remove_other_journals(self, generation: int) -> None:
        for other, path in journals.generations(self._directory).items():
            if other != generation:
                with suppress(OSError):
                    path.unlink()

    # --- Writing -------------------------------------------------------------------------------------------

    def _note(self, table: str, key: Any, value: Any) -> None:
        assert self._state is not None
        record = None if value is None else records.encode(table, value, self._state)
        self._changes.append((table, key, record))

    def _commit(self) -> None:
        assert self._journal is not None
        changes, self._changes = self._changes, []
        try:
            self._journal.append(changes)
        except BaseException as error:
            self._reset()
            if isinstance(error, OSError):
                raise store_error(error, self._directory) from error
            raise
        mark.write(self._lock, self._journal.mark)
        # What is new in a version is in the journal now: the snapshot has to say so to older ones.
        outgrown = any(NEEDS.get(table, 1) > self._version for table, _, _ in changes)
        if self._journal.size > self._compact_at or outgrown:
            self._compact()

    def _compact(self) -> None:
        """Start the next generation. The operation that led here is safe already, so failing here fails nobody."""
        assert self._state is not None and self._journal is not None
        state, following, size = self._state, self._generation + 1, self._journal.size
        try:
            journals.create(self._directory, state.store_id, following)
            snapshot.write(self._directory, state, following)
            self._postponed = 0
            self._load(mend=True)
        except (OSError, TaskHarborError):
            self._reset()
            self._postponed = 2 * size

    def _settle_and_reserve(
        self,
        settlements: Sequence[Settlement],
        queues: tuple[str, ...],
        now: datetime,
        lease_for: timedelta,
        limit: int,
        types: tuple[str, ...] | None,
        owner: str,
        tenant: str | None = None,
    ) -> tuple[Settled, Leased]:
        with self._writing():
            return super()._settle_and_reserve(settlements, queues, now, lease_for, limit, types, owner, tenant)


def _after_fork() -> None:
    """What another thread of the parent was doing is not the child's to finish, nor its lock to wait for."""
    for driver in list(_open_drivers):
        driver._reset()
        driver._begin_process()


os.register_at_fork(after_in_child=_after_fork)

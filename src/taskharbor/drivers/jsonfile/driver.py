"""The JSON driver: the in-process engine on a directory that several processes may share, one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from taskharbor.core.contract import Leased, Listener, Settled
from taskharbor.core.errors import SchemaMissing, StoreCorrupt, StoreUnavailable, TaskHarborError
from taskharbor.core.limits import Limits
from taskharbor.core.model import Settlement
from taskharbor.drivers.engine import EngineDriver
from taskharbor.drivers.governing import Ask
from taskharbor.drivers.jsonfile import journal as journals
from taskharbor.drivers.jsonfile import mark, records, snapshot
from taskharbor.drivers.jsonfile.failures import store_error, unreadable
from taskharbor.drivers.jsonfile.journal import Change, Journal
from taskharbor.drivers.jsonfile.listening import JsonListener
from taskharbor.drivers.jsonfile.lock import StoreLock
from taskharbor.drivers.listening import BaseListener
from taskharbor.drivers.places import Place, Places
from taskharbor.drivers.state import State

SMALLEST_COMPACTION: Final = 1_048_576
"""A journal shorter than this is not worth a new snapshot, however small the old one is."""

NEEDS: Final = {**snapshot.NEW_TABLES, "queues": 2}
"""The version of the format that a change of a table may need."""

_open_drivers: WeakSet[JsonDriver] = WeakSet()


@dataclass(frozen=True, slots=True)
class Copy:
    """What is on disk, in memory, and how far it was read."""

    state: State
    journal: Journal
    generation: int
    version: int
    identity: snapshot.Identity | None
    compact_at: int


class Turn(Place):
    """One operation's turn at the store: the lock it holds, the copy it works on and what it changes in that."""

    __slots__ = ("changes", "copy", "lock")

    def __init__(self) -> None:
        super().__init__()
        self.lock = StoreLock()
        self.copy: Copy | None = None
        self.changes: list[Change] = []

    def drop_copy(self) -> None:
        if self.copy is not None:
            self.copy.journal.close()
        self.copy = None


class JsonDriver(EngineDriver):
    """Every operation holds the store's lock, reads what others did meanwhile, and is on disk when it returns.

    A second process waits at most `wait_s` for its turn and then hears StoreUnavailable.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits | None = None, wait_s: float = 30.0) -> None:
        super().__init__(limits=limits)
        self._directory = Path(path).absolute()
        self._wait_s = wait_s
        self._postponed = 0
        self._begin_process()
        _open_drivers.add(self)

    def _begin_process(self) -> None:
        self._places = Places(1)
        self._copy: Copy | None = None

    # --- Life ----------------------------------------------------------------------------------------------

    def migrate(self) -> None:
        self._check_open()
        try:
            # A store that is there already may be one that this process can only read.
            with self._turn(exclusive=False) as turn:
                self._refresh(turn, mend=False)
            return
        except SchemaMissing:
            pass
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise store_error(error, self._directory) from error
        with self._turn(exclusive=True, create=True) as turn:
            try:
                self._refresh(turn, mend=True)
            except SchemaMissing:
                self._create(turn)

    def _create(self, turn: Turn) -> None:
        state = State()
        try:
            journals.create(self._directory, state.store_id, 1)
            snapshot.write(self._directory, state, 1)
        except OSError as error:
            raise store_error(error, self._directory) from error
        self._refresh(turn, mend=True)

    def _listen(self, queues: tuple[str, ...]) -> Listener:
        return JsonListener(self._directory)

    def _close(self) -> None:
        turn = Turn()
        try:
            self._take_place(turn, inf)
            if self._copy is not None:
                self._copy.journal.close()
            self._copy = None
        finally:
            self._places.give_back(turn)

    # --- One operation ---------------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[EngineDriver]:
        """A driver whose calls are one operation of this store: all of them are kept, or none if the block raises.
        Others wait meanwhile, and so would a call of this driver itself."""
        with self._writing() as state:
            yield _Inside(state, self.limits)

    def _reading(self) -> AbstractContextManager[State]:
        return self._operation(exclusive=False)

    def _writing(self) -> AbstractContextManager[State]:
        return self._operation(exclusive=True)

    @contextmanager
    def _operation(self, *, exclusive: bool) -> Iterator[State]:
        with self._turn(exclusive=exclusive) as turn:
            state = self._refresh(turn, mend=exclusive).state
            state.on_change = partial(_note, state, turn.changes)
            try:
                yield state
                if turn.changes:
                    self._commit(turn)
            finally:
                state.on_change = None

    @contextmanager
    def _turn(self, *, exclusive: bool, create: bool = False) -> Iterator[Turn]:
        """This thread's turn in this process, and this process's turn at the store.

        The turn takes the copy with it, and puts it back when it ends in good order. If an interrupt takes the thread
        out of it, at whatever moment, the next turn finds none and reads what is on disk, where the truth is.
        """
        turn = Turn()
        try:
            if not self._take_place(turn, self._wait_s):
                raise StoreUnavailable(
                    f"waited {self._wait_s:g} s for another thread to finish with {self._directory}: try again"
                )
            self._check_open()
            turn.copy, self._copy = self._copy, None
            # Only where a store is, or is to be: looking into a wrong directory leaves nothing behind.
            create = create or snapshot.identity(self._directory) is not None
            turn.lock.take(self._directory, exclusive=exclusive, create=create, wait_s=self._wait_s)
            try:
                yield turn
            except TaskHarborError:
                if not turn.changes:
                    self._put_back(turn)
                raise
            self._put_back(turn)
        finally:
            turn.lock.release()
            if turn.copy is not None and turn.copy is not self._copy:
                turn.copy.journal.close()
            self._places.give_back(turn)

    def _take_place(self, turn: Turn, wait_s: float) -> bool:
        for left in self._places.of_this_thread():
            # An interrupt took this thread out of it, and a traceback keeps it open, with its lock.
            assert isinstance(left, Turn)
            left.lock.release()
            self._places.give_back(left)
        return self._places.take(turn, wait_s)

    def _put_back(self, turn: Turn) -> None:
        if self._places.has(turn):
            self._copy, turn.copy = turn.copy, None

    def _refresh(self, turn: Turn, *, mend: bool) -> Copy:
        """The state as it is on disk now."""
        copy = turn.copy
        try:
            if copy is None or snapshot.identity(self._directory) != copy.identity:
                return self._load(turn, mend=mend)
            copy.journal.catch_up(mark.read(turn.lock.descriptor), mend=mend)
        except OSError as error:
            turn.drop_copy()
            raise (store_error if mend else unreadable)(error, self._directory) from error
        except BaseException:
            turn.drop_copy()
            raise
        return copy

    def _load(self, turn: Turn, *, mend: bool) -> Copy:
        turn.drop_copy()
        try:
            kept = snapshot.read(self._directory)
        except SchemaMissing:
            self._refuse_orphaned_journals()
            raise
        journal = Journal(self._directory, kept.state, kept.generation)
        try:
            journal.catch_up(mark.read(turn.lock.descriptor), mend=mend)
        except BaseException:
            journal.close()
            raise
        if mend:
            self._remove_other_journals(kept.generation)
        compact_at = max(SMALLEST_COMPACTION, kept.size, self._postponed)
        turn.copy = Copy(kept.state, journal, kept.generation, kept.version, kept.identity, compact_at)
        return turn.copy

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

    def _commit(self, turn: Turn) -> None:
        copy = turn.copy
        assert copy is not None
        if not self._places.has(turn):
            raise StoreUnavailable(
                "another call came in between in the same thread, as from a signal handler, "
                "and nothing of this one was kept: try again"
            )
        try:
            copy.journal.append(turn.changes)
        except OSError as error:
            raise store_error(error, self._directory) from error
        mark.write(turn.lock.descriptor, copy.journal.mark)
        # What is new in a version is in the journal now: the snapshot has to say so to older ones.
        outgrown = any(NEEDS.get(table, 1) > copy.version for table, _, _ in turn.changes)
        if copy.journal.size > copy.compact_at or outgrown:
            self._compact(turn, copy)

    def _compact(self, turn: Turn, copy: Copy) -> None:
        """Start the next generation. The operation that led here is safe already, so failing here fails nobody."""
        following, size = copy.generation + 1, copy.journal.size
        try:
            journals.create(self._directory, copy.state.store_id, following)
            snapshot.write(self._directory, copy.state, following)
            self._postponed = 0
            self._load(turn, mend=True)
        except (OSError, TaskHarborError):
            turn.drop_copy()
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
        with self._writing() as state:
            results = [self._settle_item(state, item, now) for item in settlements]
            return results, self._lease(state, Ask(queues, now, lease_for, limit, types, owner, tenant), {})


class _Inside(EngineDriver):
    """In the midst of an operation."""

    def __init__(self, state: State, limits: Limits) -> None:
        super().__init__(limits=limits)
        self._state = state

    def migrate(self) -> None:
        """There is nothing to do: the operation has found its tables."""

    def _reading(self) -> AbstractContextManager[State]:
        return nullcontext(self._state)

    def _writing(self) -> AbstractContextManager[State]:
        return nullcontext(self._state)

    def _listen(self, queues: tuple[str, ...]) -> Listener:
        return BaseListener()  # nobody else writes meanwhile

    def _close(self) -> None:
        """What it works on is the operation's."""


def _note(state: State, changes: list[Change], table: str, key: Any, value: Any) -> None:
    record = None if value is None else records.encode(table, value, state)
    changes.append((table, key, record))


def _after_fork() -> None:
    """What another thread of the parent was doing is not the child's to finish, nor its lock to wait for."""
    for driver in list(_open_drivers):
        if driver._copy is not None:
            driver._copy.journal.close()
        driver._begin_process()


os.register_at_fork(after_in_child=_after_fork)

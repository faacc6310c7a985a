"""Where refused rows are kept: each with the reason and the run, once however often a publish is tried, and however
often the same rows of the same source are refused for the same reason."""

from __future__ import annotations

import fcntl
import json
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskharbor.core.clock import utc_now
from taskharbor.core.errors import MissingExtra

if TYPE_CHECKING:
    from taskharbor.pipeline.sink_options import Plan

Rejects = Sequence[tuple[str, str]]
"""Rows as JSON, each with the reason."""


_MOST_REASONS = 5
_LONGEST_EXAMPLE = 200


def most_frequent(rows: Rejects) -> list[dict[str, Any]]:
    """The reasons that most rows were refused for, each with how many and one of them. What differs only in a value
    that it quotes, or in numbers, is one reason."""
    counts: Counter[str] = Counter()
    first: dict[str, tuple[str, str]] = {}
    for row, reason in rows:
        alike = re.sub(r"\d+", "0", reason.partition(", got ")[0])
        counts[alike] += 1
        first.setdefault(alike, (row, reason))
    return [
        {"reason": first[alike][1], "rows": count, "example": first[alike][0][:_LONGEST_EXAMPLE]}
        for alike, count in counts.most_common(_MOST_REASONS)
    ]


class Keeper(ABC):
    """The rejects of one run."""

    def __init__(self, place: str, run_id: str, source: str) -> None:
        self.place = place
        self._run_id = run_id
        self._source = source

    @abstractmethod
    def write(self, rows: Rejects) -> None:
        """Keep the rows of this run, less those that another run of the same source has kept. Again for the same run:
        replaces what it kept, or changes nothing."""

    def _fresh(self, rows: Rejects, kept: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """The rows that are not among the kept ones. Of rows that are alike, as many as one run has at most."""
        known = Counter((each["row"], each["reason"]) for each in kept if each["source"] == self._source)
        fresh = []
        for row, reason in rows:
            if known[row, reason]:
                known[row, reason] -= 1
            else:
                fresh.append((row, reason))
        return fresh

    def _records(self, rows: Rejects) -> list[dict[str, Any]]:
        now = utc_now()
        shared = {"run_id": self._run_id, "source": self._source}
        return [{**shared, "row": row, "reason": reason, "rejected_at": now, "day": now.date()} for row, reason in rows]


def keeper(plan: Plan, run_id: str) -> Keeper | None:
    """The place that the options name; None if they name none."""
    return keeper_at(run_id, plan.source, rejects=plan.rejects, lake=plan.lake)


def keeper_at(run_id: str, source: str, *, rejects: str | None = None, lake: str | None = None) -> Keeper | None:
    if rejects:
        return FileKeeper(rejects, run_id, source)
    return LakeKeeper(lake, run_id, source) if lake else None


class FileKeeper(Keeper):
    """A directory with a Parquet file for each run that had rejects, or a file of JSON lines for its name. Loads that
    keep their rejects in one place at the same time wait for each other."""

    def write(self, rows: Rejects) -> None:
        if self.place.endswith((".jsonl", ".json", ".ndjson")):
            target = Path(self.place)
            with _alone(target.parent, target.name):
                self._write_lines(target, rows)
            return
        directory = Path(self.place)
        with _alone(directory, "rejects"):
            self._write_file(directory, rows)

    def _write_file(self, directory: Path, rows: Rejects) -> None:
        import pyarrow.parquet as pq

        name = re.sub(r"[^\w.-]", "_", self._run_id)
        target = directory / f"rejects-{name}.parquet"
        others = [path for path in sorted(directory.glob("rejects-*.parquet")) if path != target]
        kept = (row for path in others for row in _rows_of(path))
        fresh = self._fresh(rows, kept)
        if not fresh:
            target.unlink(missing_ok=True)
            return
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        pq.write_table(as_table(self._records(fresh)), temporary)
        temporary.replace(target)

    def _write_lines(self, target: Path, rows: Rejects) -> None:
        old = target.read_text("utf-8").splitlines(keepends=True) if target.exists() else []
        lines = [(line, _record_of(line)) for line in old]
        kept = [(line, record) for line, record in lines if record.get("run_id") != self._run_id]
        fresh = self._fresh(rows, (record for _, record in kept if "row" in record))
        new = [json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in self._records(fresh)]
        if not new and len(kept) == len(lines):
            return
        texts = [line if line.endswith("\n") else f"{line}\n" for line, _ in kept]
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_text("".join([*texts, *new]), "utf-8")
        temporary.replace(target)


@contextmanager
def _alone(directory: Path, name: str) -> Iterator[None]:
    """Between reading what was kept and writing it again, nobody else does either."""
    directory.mkdir(parents=True, exist_ok=True)
    guard = directory / f".{name}.guard"
    with guard.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _rows_of(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found: list[dict[str, Any]] = pq.read_table(path, columns=["source", "row", "reason"]).to_pylist()
    except (OSError, pa.ArrowException):  # somebody's own file under a name like ours
        return []
    return found


def _record_of(line: str) -> dict[str, Any]:
    """A line that somebody else has written stays as it is."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return {"row": None, "reason": None, "source": None, **record} if isinstance(record, dict) else {}


class LakeKeeper(Keeper):
    """The table `silver/rejects` of a lake. The commit carries the run, so that it is made once."""

    def __init__(self, lake: str, run_id: str, source: str) -> None:
        super().__init__(f"{lake.rstrip('/')}/silver/rejects", run_id, source)
        self._lake = lake

    def write(self, rows: Rejects) -> None:
        try:
            from deltalake import CommitProperties, Transaction, write_deltalake
        except ImportError:
            raise MissingExtra("a lake needs an extra: pip install 'taskharbor[spark]'") from None
        from taskharbor.pipeline.delta import ensure_table, open_table
        from taskharbor.pipeline.lake import Lake
        from taskharbor.pipeline.lake_schemas import SILVER_REJECTS
        from taskharbor.pipeline.lock import LakeLock

        lake = Lake(self._lake)
        if lake.exists():
            lake.check()
        else:
            with LakeLock(lake):
                lake.create()
        ensure_table(lake, SILVER_REJECTS)
        application = f"taskharbor:rejects:{self._run_id}"
        table = open_table(lake, SILVER_REJECTS)
        if table.transaction_version(application) is not None:
            return
        fresh = self._fresh(rows, self._kept(table))
        if not fresh:
            return
        write_deltalake(
            str(lake.path(SILVER_REJECTS)),
            as_table(self._records(fresh)),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(application, 1)]),
        )

    def _kept(self, table: Any) -> Iterator[dict[str, Any]]:
        import pyarrow.compute as pc

        # Batch by batch: of a large table only the rows of this source are ever held.
        scanned = table.to_pyarrow_dataset().scanner(
            columns=["source", "row", "reason"], filter=pc.field("source") == self._source
        )
        for batch in scanned.to_batches():
            yield from batch.to_pylist()


def as_table(records: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    from taskharbor.pipeline.lake_schemas import REJECTS
    from taskharbor.pipeline.schemas import arrow

    return pa.Table.from_pylist(records, schema=arrow(REJECTS))

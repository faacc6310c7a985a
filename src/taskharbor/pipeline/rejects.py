"""Where refused rows are kept: each with the reason and the run, once however often a publish is tried."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskharbor.core.clock import utc_now
from taskharbor.core.errors import MissingExtra

if TYPE_CHECKING:
    from taskharbor.pipeline.sink_options import Plan

Rejects = Sequence[tuple[str, str]]
"""Rows as JSON, each with the reason."""


class Keeper(ABC):
    """The rejects of one run."""

    def __init__(self, place: str, run_id: str, source: str) -> None:
        self.place = place
        self._run_id = run_id
        self._source = source

    @abstractmethod
    def write(self, rows: Rejects) -> None:
        """Keep the rows of this run. Again for the same run: replaces what it kept, or changes nothing."""

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
    """A directory with a Parquet file for each run that had rejects, or a file of JSON lines for its name."""

    def write(self, rows: Rejects) -> None:
        name = re.sub(r"[^\w.-]", "_", self._run_id)
        if self.place.endswith((".jsonl", ".json", ".ndjson")):
            self._write_lines(Path(self.place), rows)
            return
        directory = Path(self.place)
        directory.mkdir(parents=True, exist_ok=True)
        target = directory / f"rejects-{name}.parquet"
        import pyarrow.parquet as pq

        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        pq.write_table(as_table(self._records(rows)), temporary)
        temporary.replace(target)

    def _write_lines(self, target: Path, rows: Rejects) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        old = target.read_text("utf-8").splitlines(keepends=True) if target.exists() else []
        kept = [line for line in old if json.loads(line).get("run_id") != self._run_id]
        new = [json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in self._records(rows)]
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_text("".join([*kept, *new]), "utf-8")
        temporary.replace(target)


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
        if open_table(lake, SILVER_REJECTS).transaction_version(application) is not None:
            return
        write_deltalake(
            str(lake.path(SILVER_REJECTS)),
            as_table(self._records(rows)),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(application, 1)]),
        )


def as_table(records: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    from taskharbor.pipeline.lake_schemas import REJECTS
    from taskharbor.pipeline.schemas import arrow

    return pa.Table.from_pylist(records, schema=arrow(REJECTS))

"""The way of one batch from bronze through silver to gold.

Each table takes the batch in with one commit that carries the batch's number, and a table that has it already is
passed over. So a run that was killed anywhere is finished by the next one, which starts from what was committed.
`gold/audit` comes last: a batch that it has is through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline import audit, delta, few_rows, quality, reuse, silver, silver_files
from taskharbor.pipeline.bronze import Batch, files_of_batch, new_tag
from taskharbor.pipeline.ended_ids import EndedIds
from taskharbor.pipeline.gold import WHOLE_DAY, GoldTable, News, gold_tables, merged
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import (
    BRONZE_HISTORY,
    GOLD_AUDIT,
    SILVER_ATTEMPTS,
    SILVER_JOBS,
    SILVER_REJECTS,
    TableSpec,
)
from taskharbor.pipeline.part_files import DataFile
from taskharbor.pipeline.quality import Check, QualityFailed
from taskharbor.pipeline.reuse import Reuse
from taskharbor.pipeline.silver_files import Laid, Layout
from taskharbor.pipeline.slo import DEFAULT, Objective

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from taskharbor.pipeline.store import PipelineStore

AT_ONCE: Final = 4
"""Tables that are worked on at the same time: each needs Spark only now and then."""


_OTHERS: Final = TableSpec(SILVER_JOBS.name, silver.PARTS, ())
"""Facts on their way to silver/jobs."""
_UNUSED: Final = ("payload", "result")
"""Columns of bronze that no later table has; they may be large."""


def say_nothing(stage: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Change:
    """What is to become of a table: files in, files out, and what its commit says."""

    spec: TableSpec
    add: Sequence[DataFile]
    remove: Sequence[DataFile] = ()
    note: Mapping[str, Any] = field(default_factory=dict)
    first: Callable[[], None] | None = None
    """To be done right before the commit; once more is no harm."""


@dataclass
class Steps:
    """One batch on its way."""

    spark: SparkSession
    lake: Lake
    store: PipelineStore
    batch: Batch
    run_id: str
    allowed: Callable[[], None]
    """Asked before every commit; raises if another run has taken over."""
    objectives: tuple[Objective, ...] = DEFAULT
    progress: Callable[[str], None] = say_nothing
    reject_bad: bool = False
    """Put rows that a check would stumble over into silver/rejects, and go on without them."""
    profile: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def carry(self) -> list[Check]:
        """Bring the batch through. Raises QualityFailed, with silver and gold as they were."""
        taken_in = self._files(BRONZE_HISTORY)
        bronze = self._frame(BRONZE_HISTORY, taken_in)
        self.progress("silver")
        with ThreadPoolExecutor(AT_ONCE, "taskharbor-lake") as pool:
            in_store = pool.submit(quality.store_rows, self.store, self.batch)
            doubled = pool.submit(quality.duplicates, self.lake, taken_in)
            changes, totals = self._silver(bronze, taken_in)
            self.checks = quality.checks(self.batch, self.profile, doubled.result(), totals, in_store.result())
        if not all(check.passed for check in self.checks):
            self._audit(passed=False)
            raise QualityFailed(self.checks, self.batch.number)
        for change in changes:
            self._commit(change)
        self.progress("gold")
        news = News(
            self.batch.store_id,
            self._frame(SILVER_ATTEMPTS, self._files(SILVER_ATTEMPTS)),
            self._known_jobs(),
            self.objectives,
        )
        try:
            with ThreadPoolExecutor(AT_ONCE, "taskharbor-lake") as pool:
                for each in [pool.submit(self._gold, table, news) for table in gold_tables()]:
                    each.result()
        finally:
            news.forget()
        self._audit(passed=True)
        return self.checks

    # --- silver ----------------------------------------------------------------------------------------------------

    def _silver(self, bronze: DataFrame, taken_in: Sequence[DataFile]) -> tuple[list[_Change], dict[str, int]]:
        """What is to become of the tables of silver, and what that changes in the counts of jobs."""
        number, store_id = self.batch.number, self.batch.store_id
        tags = [None if self._has(spec) else new_tag(store_id, number) for spec in (SILVER_ATTEMPTS, SILVER_JOBS)]
        ended = EndedIds(self.lake, store_id, number)
        reused = reuse.look(self.lake, taken_in, ended) if tags[1] is not None else reuse.NONE
        layout = Layout(
            str(self.lake.root), store_id, number, tags[0], tags[1], new_tag(store_id, number), reused.not_alone
        )
        laid = silver_files.write(silver.judged(bronze, self.reject_bad), layout)
        self.profile = laid.profile
        changes = []
        if laid.profile["rejected"] and not self._has(SILVER_REJECTS):
            rows = silver.rejects(bronze, number, self.run_id, self.reject_bad)
            changes.append(_Change(SILVER_REJECTS, self._written(SILVER_REJECTS, rows)))
        if layout.attempts is not None:
            changes.append(_Change(SILVER_ATTEMPTS, laid.attempts))
        if layout.jobs is None:
            note = delta.last_note(self.lake, SILVER_JOBS, store_id, number)
            assert note is not None, "it is kept, and the log is cleaned only when nothing is under way"
            return changes, note["totals"]
        files, remove, totals = self._jobs(laid, reused)
        silver_files.forget_others(self.lake, layout)
        change = _Change(SILVER_JOBS, files, remove, {"totals": totals}, first=lambda: ended.add(reused.ending))
        return [*changes, change], totals

    def _jobs(self, laid: Laid, reused: Reuse) -> tuple[list[DataFile], list[DataFile], dict[str, int]]:
        """Files of silver/jobs to come and to go. Jobs with a single fact are written; the others are put together."""
        if not laid.others:
            return laid.jobs, [], quality.job_totals(self.lake, laid.jobs, [])
        lives = bool(reused.ended) or reused.within
        table = delta.open_table(self.lake, SILVER_JOBS)
        remove, over, gone = self._known_files(delta.files_of(table, SILVER_JOBS), reused.ended)
        known = self._frame(SILVER_JOBS, remove)
        kept = None
        if over:
            # Of finished jobs only those whose ids are in use again: the files may be large.
            rest, ids = self._frame(SILVER_JOBS, over), self._ids(gone)
            mine = rest["store_id"] == self.batch.store_id
            known = known.unionByName(rest.where(mine).join(ids, "job_id", "left_semi").select(*known.columns))
            unchanged = rest.where(mine).join(ids, "job_id", "left_anti").select(*rest.columns)
            kept = rest.where(~mine).unionByName(unchanged)
            remove = [*remove, *over]
        pieces = silver.pieces_of(self._frame(_OTHERS, laid.others), known)
        rows = silver.merged_jobs(pieces, lives=lives)
        files = [*laid.jobs, *self._written(SILVER_JOBS, rows if kept is None else rows.unionByName(kept))]
        totals = quality.job_totals(self.lake, files, remove)
        if lives and totals["attempts"] != self.profile["attempts"]:
            totals["superseded"] = silver.superseded(pieces)
        return files, remove, totals

    def _known_files(
        self, files: Sequence[DataFile], ended: frozenset[str]
    ) -> tuple[list[DataFile], list[DataFile], frozenset[str]]:
        """Where the jobs are that the batch may have news of: all live ones and the dead that it has news of; and
        those of finished jobs whose ids are in use again, with these ids."""
        live, dead, final = (delta.chosen(files, {"state": [state]}) for state in ("live", "dead", "final"))
        if not ended:
            return live, [], ended
        store_id = self.batch.store_id
        _, left = reuse.holding(self.lake, live, store_id, ended)  # sent back in an earlier batch
        revived, left = reuse.holding(self.lake, dead, store_id, left)
        again, missing = reuse.holding(self.lake, final, store_id, left)
        return [*live, *revived], again, left - missing

    def _ids(self, ids: frozenset[str]) -> DataFrame:
        from pyspark.sql import functions as F

        return F.broadcast(self.spark.createDataFrame([(id,) for id in sorted(ids)], "job_id string"))

    def _known_jobs(self) -> DataFrame:
        rows = self._frame(SILVER_JOBS, self._files(SILVER_JOBS))
        return rows.where(f"known_batch = {self.batch.number}").where(rows["store_id"] == self.batch.store_id)

    # --- gold ------------------------------------------------------------------------------------------------------

    def _gold(self, table: GoldTable, news: News) -> None:
        if self._has(table.spec):
            return
        files = delta.files_of(delta.open_table(self.lake, table.spec), table.spec)
        hours = self._hours(table.touches)
        days = {hour.date().isoformat() for hour in hours}
        parts = {(hour.date().isoformat(), f"{hour:%H}") for hour in hours}
        touched = [
            each
            for each in delta.chosen(files, {"day": days})
            if (part := each.values.get("part", WHOLE_DAY)) == WHOLE_DAY or (each.values["day"], part) in parts
        ]
        old = self._frame(table.spec, touched) if touched else None
        self._commit(_Change(table.spec, self._written(table.spec, merged(table, news, old)), touched))

    def _hours(self, touches: str) -> list[datetime]:
        """The hours in which something ended or was made; of weeks, their beginnings."""
        ended, created = (
            [datetime.fromtimestamp(hour * 3600, UTC) for hour in self.profile[name]] for name in ("ended", "created")
        )
        if touches == "weeks":
            return [hour - timedelta(days=hour.weekday()) for hour in created]
        return ended if touches == "ended" else [*ended, *created]

    def _audit(self, *, passed: bool) -> None:
        tag = new_tag(self.batch.store_id, self.batch.number)
        files = audit.write_audit(self.lake, self.batch, self.run_id, self.checks, tag)
        self._commit(_Change(GOLD_AUDIT, files), taken_in=passed)

    # --- tables ----------------------------------------------------------------------------------------------------

    def _has(self, spec: TableSpec) -> bool:
        return delta.batch_of(self.lake, spec, self.batch.store_id) >= self.batch.number

    def _files(self, spec: TableSpec) -> list[DataFile]:
        return files_of_batch(self.lake, spec, self.batch.store_id, self.batch.number)

    def _frame(self, spec: TableSpec, files: Sequence[DataFile]) -> DataFrame:
        if delta.is_small(self.spark) and few_rows.are_few(files):
            return few_rows.frame(self.spark, self.lake, spec, files, without=_UNUSED)
        return delta.frame(self.spark, self.lake, spec, files)

    def _written(self, spec: TableSpec, rows: DataFrame) -> list[DataFile]:
        return delta.write(rows, self.lake, spec, new_tag(self.batch.store_id, self.batch.number))

    def _commit(self, change: _Change, *, taken_in: bool = True) -> None:
        self.allowed()
        if change.note:
            delta.keep_note(self.lake, change.spec, self.batch.store_id, self.batch.number, change.note)
        if change.first is not None:
            change.first()
        delta.commit(
            self.lake,
            change.spec,
            change.add,
            store_id=self.batch.store_id,
            batch=self.batch.number,
            remove=change.remove,
            note={"run_id": self.run_id, **change.note},
            taken_in=taken_in,
        )

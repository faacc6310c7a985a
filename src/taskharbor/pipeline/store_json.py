"""The JSON store for the pipeline. One process at a time can have the directory, so it is read in one part, through
the driver, by whoever asks: that process must see the directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.model import HistoryRow, Job, JobFilter
from taskharbor.drivers.opening import StoreURL, _local_path
from taskharbor.pipeline import arrows, schemas
from taskharbor.pipeline.store import PipelineStore, Range, Selection, numbers_of
from taskharbor.pipeline.store_sql import check_option, view_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from taskharbor.drivers.jsonfile import JsonDriver

_PAGE: Final = 1_000
_BATCH_BYTES: Final = 32 * 1024 * 1024


class JsonStore(PipelineStore):
    kind = "json"

    def __init__(self, url: StoreURL) -> None:
        path = str(Path(_local_path(url)).absolute())
        super().__init__(replace(url, path=f"/{path}", rest=f"json:///{path}"))
        self._driver: JsonDriver | None = None

    def close(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    @property
    def store_id(self) -> str:
        return self._end()[0]

    def _end(self) -> tuple[str, int]:
        with self._opened()._reading() as state:
            return state.store_id, state.last_sequence

    def frontier(self) -> str:
        store_id, last = self._end()
        return f"{store_id}:{last}"

    def order_of(self, cursor: str | None) -> tuple[int, ...]:
        return numbers_of(cursor, self.store_id, 1)

    def split(self, after: str | None, upto: str, parts: int) -> list[Range]:
        return [(after, upto)] if self.order_of(after) < self.order_of(upto) else []

    def ahead(self, after: str | None, upto: str, rows: int) -> str:
        found = after
        for fact in self._facts(after, upto):
            found, rows = fact.position, rows - 1
            if not rows:
                return fact.position
        return upto if rows or found is None else found

    def read_history(
        self, after: str | None, upto: str, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        store_id = self.store_id
        records = (arrows.fact_record(fact, store_id) for fact in self._facts(after, upto))
        yield from _batches("history", records, columns)

    def _facts(self, after: str | None, upto: str) -> Iterator[HistoryRow]:
        end = self.order_of(upto)
        cursor = after
        while True:
            page = self._opened().history(cursor, _PAGE)
            for fact in page.rows:
                if self._number(fact) > end[0]:
                    return
                yield fact
            if len(page.rows) < _PAGE:
                return
            cursor = page.cursor

    @staticmethod
    def _number(fact: HistoryRow) -> int:
        return int(fact.position.rpartition(":")[2])

    def plan_table(self, table: str, selection: Selection, parts: int) -> list[Any]:
        self._check(table, selection)
        return [None]

    def read_part(
        self, table: str, selection: Selection, part: Any, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        self._check(table, selection)
        yield from _batches(table, self._records(table, selection), columns)

    def _check(self, table: str, selection: Selection) -> None:
        for name in ("queue", "type", "tenant", "status"):
            if value := getattr(selection, name):
                check_option(table, name, value)

    def _records(self, table: str, selection: Selection) -> Iterator[dict[str, Any]]:
        since, until = selection.since, selection.until
        if table == "workers":
            for worker in self._opened().workers():
                if arrows.within(worker.last_heartbeat, since, until):
                    yield arrows.worker_record(worker)
        elif table == "attempts":
            for fact in self._facts(None, self.frontier()):
                if fact.attempt is not None and _chosen(fact, selection) and arrows.within(fact.at, since, until):
                    yield arrows.attempt_record(fact)
        else:
            dead = table == "dlq"
            for job in self._jobs(selection, "dlq" if dead else selection.status):
                if arrows.within(job.dlq_failed_at if dead else job.created_at, since, until):
                    yield arrows.dead_record(job) if dead else arrows.job_record(job)

    def _jobs(self, selection: Selection, status: str | None) -> Iterator[Job]:
        filter = JobFilter(status=status, queue=selection.queue, type=selection.type, tenant_id=selection.tenant)
        cursor: str | None = None
        while True:
            page = self._opened().list(filter, cursor, _PAGE)
            yield from page.jobs
            cursor = page.cursor
            if cursor is None:
                return

    def _opened(self) -> JsonDriver:
        if self._driver is None:
            from taskharbor.drivers.jsonfile import JsonDriver

            self._driver = JsonDriver(_local_path(self._parsed))
        return self._driver


def _chosen(fact: HistoryRow, selection: Selection) -> bool:
    return (
        (selection.queue is None or fact.queue == selection.queue)
        and (selection.type is None or fact.type == selection.type)
        and (selection.tenant is None or fact.tenant_id == selection.tenant)
        and (selection.status is None or fact.outcome == selection.status)
    )


def _batches(table: str, records: Iterable[dict[str, Any]], columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    schema = schemas.arrow(schemas.pick(schemas.SOURCE_TABLES[table], columns or view_columns(table)))
    held: list[dict[str, Any]] = []
    size = 0
    for record in records:
        held.append(record)
        size += 500 + len(record.get("payload") or b"") + len(record.get("result") or b"")
        if size > _BATCH_BYTES:
            yield arrows.batch_from_records(held, schema)
            held, size = [], 0
    if held:
        yield arrows.batch_from_records(held, schema)

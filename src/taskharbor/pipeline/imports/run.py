"""An import from beginning to end: read, map, enter, and account for everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Final

from taskharbor.core.errors import InvalidInput, SchemaMissing, TaskHarborError
from taskharbor.drivers.opening import open_driver, parse_url, redacted
from taskharbor.pipeline.imports import jobs_json, mq_sql, task_orchestrator, taskharbor_go
from taskharbor.pipeline.imports.door import Door, open_door
from taskharbor.pipeline.imports.model import Imported, Notes, Row, Settings, Source
from taskharbor.pipeline.rejects import keeper_at
from taskharbor.pipeline.sink_values import row_json

FORMATS: Final[dict[str, Callable[[str, dict[str, Any]], Source]]] = {
    "taskharbor-go": taskharbor_go.open_source,
    "jobs-json": jobs_json.open_source,
    "mq-sql": mq_sql.open_source,
    "task-orchestrator": task_orchestrator.open_source,
}
PORTION: Final = 500
NO_KEY: Final = "idempotency key: it belongs to another job, so this one came without; meta has it as imported.key"


@dataclass(slots=True)
class ImportReport:
    """What an import did. Every job that was read was imported, was there already, or was refused."""

    source: str
    read: int = 0
    imported: int = 0
    known: int = 0
    rejected: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    """Of the jobs that were read and understood: how many stand where."""
    facts: int = 0
    """Rows of history that came with the imported jobs."""
    notes: dict[str, int] = field(default_factory=dict)
    """What could not be carried over as it was, and how often."""
    rejects: str = ""
    dry_run: bool = False

    def adds_up(self) -> bool:
        return self.read == self.imported + self.known + self.rejected

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def import_jobs(
    format: str,
    source: str,
    url: str,
    *,
    type: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    flip_priority: bool = False,
    table: str | None = None,
    rejects: str | None = None,
    lake: str | None = None,
    dry_run: bool = False,
) -> ImportReport:
    """Bring over the jobs of another system. Running it again changes nothing; stop the other system first, or what
    it does in the meantime is not brought over."""
    if format not in FORMATS:
        raise InvalidInput(f"unknown format {format!r}: use one of {', '.join(FORMATS)}")
    parsed = parse_url(url)
    settings = Settings(type, queue, tenant or "default", flip_priority, parsed.limits)
    opened = FORMATS[format](source, {"table": table})
    shown = redacted(source) if "://" in source else source
    report = ImportReport(shown, dry_run=dry_run)
    notes = Notes()
    statuses: Counter[str] = Counter()
    refused: list[tuple[str, str]] = []
    with closing(opened), closing(open_driver(url)) as driver:
        if not dry_run and parsed.scheme in ("sqlite", "json", "memory"):
            driver.migrate()
        door = open_door(driver)
        for portion in _portions(_mapped(opened, settings, notes, refused, report)):
            statuses.update(item.job.status.value for item in portion)
            if dry_run:
                known = _known(door, portion)
            else:
                known, without_key = door.enter(portion)
                notes.add(NO_KEY, len(without_key))
            report.known += len(known)
            report.imported += len(portion) - len(known)
            report.facts += sum(len(item.facts) for item in portion if item.job.id not in known)
        opened.leftovers(notes)
    report.rejected = len(refused)
    if refused and not dry_run:
        # The same source gives the same name, so that a second run replaces its rejects instead of adding to them.
        run_id = f"import-{format}-{sha256(source.encode()).hexdigest()[:12]}"
        keep = keeper_at(run_id, f"{format} {shown}", rejects=rejects, lake=lake)
        if keep is None:
            keep = keeper_at(run_id, f"{format} {shown}", rejects="taskharbor-rejects")
        assert keep is not None
        keep.write(refused)
        report.rejects = keep.place
    report.by_status = dict(sorted(statuses.items()))
    report.notes = dict(notes.counts.most_common())
    if not report.adds_up():
        raise TaskHarborError(f"the counts of the import do not add up, which should not happen: {report}")
    return report


def _mapped(
    source: Source, settings: Settings, notes: Notes, refused: list[tuple[str, str]], report: ImportReport
) -> Iterator[Imported]:
    seen: set[str] = set()
    for row in source.rows():
        report.read += 1
        trial = Notes()
        try:
            item = source.mapper(row, settings, trial)
            if item.job.id in seen:
                raise InvalidInput(f"the source has the id {item.job.id!r} twice")
        except (TaskHarborError, KeyError, TypeError, ValueError) as error:
            refused.append((row_json(_own(row)), f"{_kind(error)}: {error}"))
            continue
        seen.add(item.job.id)
        notes.counts.update(trial.counts)
        yield item


def _known(door: Door, portion: list[Imported]) -> set[str]:
    """For a dry run. A store that is not there yet knows none."""
    try:
        return door.known([item.job.id for item in portion])
    except SchemaMissing:
        return set()


def _kind(error: Exception) -> str:
    return error.__class__.__name__


def _own(row: Row) -> dict[str, Any]:
    """The row as the source has it, without what the importer put beside it."""
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _portions(items: Iterator[Imported]) -> Iterator[list[Imported]]:
    portion: list[Imported] = []
    for item in items:
        portion.append(item)
        if len(portion) == PORTION:
            yield portion
            portion = []
    if portion:
        yield portion

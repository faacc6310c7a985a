"""What the demo ends with: tables of what became of the jobs, or everything as one JSON document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.form import data_of, span
from taskharbor.cli.output import Table, print_json, shortened, show
from taskharbor.cli.story import Story
from taskharbor.core.forms import attempt_data
from taskharbor.core.model import Job
from taskharbor.drivers.opening import redacted

if TYPE_CHECKING:
    from taskharbor.cli.demo_lake import Harvest

_EVENTFUL: Final = ("email.send", "card.charge", "video.encode", "backup.run")
"""The jobs whose attempts are worth a table."""
_OUTCOMES: Final = {"dead": "dead: to the dlq", "lapsed": "lapsed: lease ended"}
"""Outcomes that a newcomer may not know by their names."""


def print_text(story: Story, stays_at: str | None, harvest: Harvest | None = None) -> None:
    jobs = [story.driver.get(id) for id in story.jobs.values()]
    types = {job.id: job.type for job in jobs}
    now = story.driver.now()
    attempts = [each for each in story.attempts() if types[each.job_id] in _EVENTFUL]
    parts: list[str | Table] = [
        Table(
            ("job", "tenant", "priority", "state", "attempts", "result, or why not"),
            [
                (
                    job.type,
                    job.tenant_id,
                    job.priority,
                    job.phase(now),
                    len(story.driver.attempts(job.id)),
                    _last_word(job, story),
                )
                for job in jobs
            ],
            title="Jobs",
        ),
        Table(
            ("job", "delivery", "worker", "ran", "outcome", "error"),
            [
                (
                    types[each.job_id],
                    each.delivery,
                    each.worker.partition("-")[0],
                    span(each.finished_at - each.started_at),
                    _OUTCOMES.get(each.outcome, each.outcome.value),
                    shortened(each.error),
                )
                for each in attempts
            ],
            title="Attempts of the eventful ones, each recorded together with what it led to",
        ),
        "Counts: " + ", ".join(f"{count} {status}" for status, count in story.counts().items()) + _beside(story),
        *(_data_parts(harvest) if harvest is not None else []),
        f"Took {story.elapsed_s:.1f} s.\n\n{_look_around(story, stays_at, harvest)}",
    ]
    print()
    show(*parts)


def _last_word(job: Job, story: Story) -> str:
    """What came of the job. The error of an attempt that a later one made good is among the attempts."""
    if job.result is not None:
        return shortened(json.dumps(json.loads(job.result), ensure_ascii=False))
    attempts = story.driver.attempts(job.id)
    return shortened(job.dlq_reason or (attempts[-1].error if attempts else ""))


def _beside(story: Story) -> str:
    ticks = len(story.ticks())
    beside = [f"{ticks} ticks of pulse.beat by the end"] if ticks else []
    if story.burst is not None:
        beside.append(f"{story.burst.jobs:,} jobs of the burst")
    return f"; beside them {' and '.join(beside)}" if beside else ""


def _data_parts(harvest: Harvest) -> list[str | Table]:
    dead = [
        (each["id"], each["size"], each["tenants"]["count"], shortened(each["sample"])) for each in harvest.clusters
    ]
    counts = [(name, f"{harvest.counts.get(name, 0):,}") for name in ("done", "dlq")]
    rows = [(name, f"{count:,}") for name, count in harvest.tables.items()]
    return [
        Table(("orders", "jobs"), counts, title="What became of the orders"),
        Table(("cluster", "jobs", "tenants", "for example"), dead, title="The dead letters, by what went wrong"),
        Table(("table", "rows"), rows, title="The lake"),
    ]


def _look_around(story: Story, stays_at: str | None, harvest: Harvest | None = None) -> str:
    if stays_at is None:
        return "The file is thrown away. To look around in one, run: taskharbor demo --keep DIR"
    if stays_at.startswith("memory:"):
        return "The store goes with this process. To look around in one, run: taskharbor demo --keep DIR"
    command = f"taskharbor --url '{redacted(stays_at)}'"
    video = story.jobs.get("video.encode", "ID")
    return "\n".join(
        [
            "The jobs are still there. Look around:",
            f"  {command} jobs list --queue {story.queue}",
            f"  {command} jobs show {video}",
            f"  {command} queues list",
            f"  {command} stats",
            f"  {command} doctor",
            *(_data_places(command, harvest) if harvest is not None else []),
        ]
    )


def _data_places(command: str, harvest: Harvest) -> list[str]:
    return [
        f"  {command} pipeline status --lake '{harvest.lake}'",
        f"  {command} pipeline triage --lake '{harvest.lake}'",
        "",
        f"The report, for a browser: {harvest.page}",
        f"The lake, for Spark, DuckDB, Polars or pandas: {harvest.lake}",
        f"The orders as they came: {harvest.orders}",
    ]


def print_data(story: Story, url: str, harvest: Harvest | None = None) -> None:
    print_json(_data(story, url, harvest))


def _data(story: Story, url: str, harvest: Harvest | None) -> dict[str, Any]:
    burst = story.burst
    return {
        "url": redacted(url),
        "queue": story.queue,
        "came_true": story.failed is None,
        "failed": story.failed,
        "steps": [{"at_s": round(at_s, 3), "what": what} for at_s, what in story.steps],
        "jobs": [_job(story.driver.get(id)) for id in story.jobs.values()],
        "attempts": [{"job_id": each.job_id, **attempt_data(each)} for each in story.attempts()],
        "counts": story.counts(),
        "ticks": len(story.ticks()),
        "burst": None
        if burst is None
        else {"jobs": burst.jobs, "enqueue_s": burst.enqueue_s, "drain_s": burst.drain_s},
        "data": None
        if harvest is None
        else {
            "orders": str(harvest.orders),
            "lake": str(harvest.lake),
            "report": str(harvest.page),
            "counts": harvest.counts,
            "clusters": harvest.clusters,
            "tables": harvest.tables,
        },
        "took_s": story.elapsed_s,
    }


def _job(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "tenant_id": job.tenant_id,
        "priority": job.priority,
        "status": job.status.value,
        "deliveries": job.deliveries,
        "attempts": job.attempts,
        "last_error": job.last_error or None,
        "result": data_of(job.result)[0],
    }

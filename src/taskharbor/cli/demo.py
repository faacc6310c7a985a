"""`taskharbor demo`: the life of a few jobs, shown."""

from __future__ import annotations

import argparse
import json
import time
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.options import Verbs, add_verb, given_url

if TYPE_CHECKING:
    from taskharbor.cli.story import BulkTimes, Story
    from taskharbor.core.model import Job

_OUTCOMES: Final = {"dead": "dead: to the dlq"}
"""Attempts whose outcome is called otherwise than the state it leads to."""
_URL_HELP: Final = "the store (default: a throw-away SQLite file)"
_DESCRIPTION: Final = """\
Enqueue a few jobs, reserve and settle them, and show what became of each.
Uses a throw-away SQLite file, or the store of --url, where the jobs of the demo then stay.
The environment's TASKHARBOR_URL does not count here.

examples:
  taskharbor demo
  taskharbor demo --url memory://
  taskharbor demo --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "demo", help="see the life of a few jobs", description=_DESCRIPTION, url_help=_URL_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.story import tell_story, time_bulk
    from taskharbor.drivers.opening import open_driver, redacted

    with ExitStack() as cleanup:
        asked = given_url(arguments)
        url = asked
        if url is None:
            # Not TASKHARBOR_URL: whoever tries the demo does not expect it to write to the store in use.
            url = f"sqlite:///{cleanup.enter_context(TemporaryDirectory(prefix='taskharbor-demo-'))}/demo.db"
        driver = open_driver(url)
        cleanup.callback(driver.close)
        began = time.perf_counter()
        driver.migrate()
        story = tell_story(driver)
        story_s = time.perf_counter() - began
        bulk = time_bulk(driver) if asked is None else None
        if arguments.json:
            print(json.dumps(_as_data(story, redacted(url), story_s, bulk), indent=2))
        else:
            where = "a throw-away SQLite file" if asked is None else redacted(url)
            print(_as_text(story, where, story_s, bulk))
    return 0


def _as_text(story: Story, where: str, story_s: float, bulk: BulkTimes | None) -> str:
    from taskharbor.cli.table import table

    jobs, attempts = story.jobs(), story.attempts()
    names = {job.id: job.type for job in jobs}
    counts = story.driver.counts().queues[story.queue]
    parts = [
        f"A few jobs on {where}. Times are the story's own: every call takes the time as an argument.",
        "\n".join(f"  {f'+{seconds:.0f} s':>6}  {what}" for seconds, what in story.steps),
        "Jobs\n"
        + table(
            ["job", "tenant", "priority", "status", "deliveries", "failures", "result, or why not"],
            [
                (j.type, j.tenant_id, j.priority, j.phase(story.now), j.deliveries, j.attempts, _last_word(j))
                for j in jobs
            ],
        ),
        "Attempts, each written together with its settle\n"
        + table(
            ["at", "job", "delivery", "worker", "outcome", "error"],
            [
                (
                    f"+{(a.finished_at - story.start).total_seconds():.0f} s",
                    names[a.job_id],
                    a.delivery,
                    a.worker,
                    _OUTCOMES.get(a.outcome, a.outcome.value),
                    a.error,
                )
                for a in attempts
            ],
        ),
        "Counts: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count),
        f"Took {story_s * 1000:.0f} ms, migration and all.",
    ]
    if bulk is not None:
        parts[-1] += (
            f" {bulk.jobs:,} more jobs in batches: enqueued in {bulk.enqueue_s * 1000:.0f} ms,"
            f" reserved and settled in {bulk.drain_s * 1000:.0f} ms."
        )
    return "\n\n".join(parts)


def _last_word(job: Job) -> str:
    """What came of the job. The error of an attempt that a later one made good is among the attempts."""
    if job.result is not None:
        return job.result.decode()
    return job.dlq_reason or ""


def _as_data(story: Story, url: str, story_s: float, bulk: BulkTimes | None) -> dict[str, Any]:
    return {
        "url": url,
        "queue": story.queue,
        "steps": [{"at_s": seconds, "what": what} for seconds, what in story.steps],
        "jobs": [
            {
                "id": job.id,
                "type": job.type,
                "tenant_id": job.tenant_id,
                "priority": job.priority,
                "status": job.status.value,
                "deliveries": job.deliveries,
                "attempts": job.attempts,
                "last_error": job.last_error,
                "result": None if job.result is None else json.loads(job.result),
            }
            for job in story.jobs()
        ],
        "attempts": [
            {
                "job_id": attempt.job_id,
                "delivery": attempt.delivery,
                "worker": attempt.worker,
                "outcome": attempt.outcome.value,
                "error": attempt.error,
                "finished_at": attempt.finished_at.isoformat(),
            }
            for attempt in story.attempts()
        ],
        "counts": story.driver.counts().queues[story.queue],
        "story_s": story_s,
        "bulk": None if bulk is None else {"jobs": bulk.jobs, "enqueue_s": bulk.enqueue_s, "drain_s": bulk.drain_s},
    }

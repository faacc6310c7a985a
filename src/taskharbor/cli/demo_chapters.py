"""The chapters of the demo. What happens in them happens for real: workers, threads, processes, seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Final

from taskharbor.app import JobView
from taskharbor.cli import demo_app
from taskharbor.cli.demo_app import slow
from taskharbor.cli.story import Burst, Story
from taskharbor.core.errors import JobNotInflight, LeaseLost
from taskharbor.core.model import Job

BURST_JOBS: Final = 5_000
DIGEST_DELAY_S: Final = 2.0
FEEDS: Final = ("news", "weather", "tides")


def enqueue_jobs(story: Story) -> None:
    """Everything here waits until the first worker comes, so that the order of their runs means something."""
    story.enqueue("email.send", {"to": "ada@example.com"}, tenant="acme")
    story.enqueue("card.charge", {"cents": 4200}, tenant="globex")
    story.enqueue("digest.send", {"week": 20}, tenant="initech", delay=DIGEST_DELAY_S)
    # One job per key and queue: the next demo on the same store has a queue, and so an invoice, of its own.
    terms = {"tenant": "acme", "key": "invoice-1042", "unique": ("tenant", "type", "queue")}
    first = story.enqueue("invoice.send", {"number": 1042}, **terms)
    again = story.enqueue("invoice.send", {"number": 1042}, **terms)
    story.enqueue("report.build", {"month": "2031-05"}, tenant="globex", priority=9)
    story.check(story.job("digest.send").state == "scheduled", "digest.send waits for its time")
    story.tell("enqueued 5 jobs of 3 tenants; report.build last, with priority 9; digest.send for 2 s later")
    story.check(not first.existed and again == (first.id, True), "the same key gives the same job")
    story.tell("enqueued invoice-1042 a second time: its key gave the same job back")


def first_worker(story: Story) -> None:
    """Bob has one slot for the quick jobs. He is the first worker, so he leads, and runs the schedule."""
    story.start_worker("bob", {story.queue: 1})
    story.until(
        "some worker leads the fleet", lambda: any(e.until > story.driver.now() for e in story.driver.leaders())
    )


def quick_jobs(story: Story) -> None:
    report, invoice = story.ended("report.build", "done"), story.ended("invoice.send", "done")
    enqueued = ["email.send", "card.charge", "invoice.send", "report.build"]
    in_order = sorted(enqueued, key=lambda name: _first_start(story, name))
    story.check(in_order == [enqueued[-1], *enqueued[:-1]], f"priority first, then the order they came, not {in_order}")
    story.check(len(report.attempts) == len(invoice.attempts) == 1, "jobs that succeed run once")
    story.tell("bob, a worker with one slot, took report.build first, then the others in the order they came")
    email = story.ended("email.send", "done")
    outcomes = [attempt.outcome.value for attempt in email.attempts]
    story.check(outcomes == ["retried", "succeeded"], "email.send fails once and then succeeds")
    waited_s = (email.attempts[1].started_at - email.attempts[0].finished_at).total_seconds()
    story.check(waited_s >= 0.29, "a retry waits as its policy says")
    story.tell(f"email.send failed (mail server busy), was tried again {waited_s:.1f} s later, and succeeded")
    card = story.ended("card.charge", "dlq")
    story.check(card.reason == "max_attempts" and len(card.attempts) == 2, "card.charge uses up its attempts")
    story.tell("card.charge failed twice, which is all it is allowed: it is in the dead-letter queue")


def _first_start(story: Story, type: str) -> datetime:
    return story.until(f"{type} runs", lambda: story.job(type).attempts)[0].started_at


@contextmanager
def worker_process(story: Story, words: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that can be killed, at once if the story ends early. What it logs goes to `words`."""
    command = [sys.executable, "-c", "from taskharbor.cli.demo_app import serve; serve()"]
    environment = demo_app.orders(story.harbor.url, story.queue, story.worker_id("ada"))
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def kill_a_worker(story: Story, process: subprocess.Popen[bytes]) -> JobView:
    """Ada is killed in mid-job. Returns the job as it was then."""

    def look() -> JobView | None:
        story.check(process.poll() is None, f"the worker process runs, but it ended with {process.returncode}")
        job = story.job("video.encode")
        story.check(not job.finished, "ada is killed in mid-job, but she was quicker")
        return job if job.state == "running" and job.progress is not None else None

    story.until("ada runs video.encode", look)
    process.kill()
    process.wait()
    killed = story.job("video.encode")
    story.check(killed.state == "running" and killed.progress is not None, "the job of a killed worker stays inflight")
    story.check(killed.record.lease_owner == story.worker_id("ada"), "the job is ada's")
    assert killed.progress is not None
    done = f"{killed.progress.done:.0f} of {demo_app.FRAMES} frames"
    story.tell(f"ada, a worker in process {process.pid}, was killed (SIGKILL) {done} into video.encode")
    return killed


def fall_silent(story: Story) -> JobView:
    """In memory there is no other process to kill. Ada takes the job, and is never heard of again."""
    owner = story.worker_id("ada")
    story.driver.reserve(slow(story.queue), lease_for=demo_app.SHORT_LEASE_S, owner=owner)
    held = story.job("video.encode")
    story.check(held.record.lease_owner == owner, "the job is ada's")
    story.tell("ada took video.encode and fell silent (this store is in memory: there is no process to kill)")
    return held


def second_worker(story: Story) -> None:
    story.start_worker("carol", {slow(story.queue): 4})


def redrive(story: Story) -> None:
    demo_app.gateway_works.set()
    sent = story.harbor.redrive(queue=story.queue, type="card.charge")
    story.check(list(sent) == [story.jobs["card.charge"]], "redrive sends back the one job in the DLQ")
    card = story.ended("card.charge", "done")
    story.check(len(card.attempts) == 3, "a redriven job keeps its history")
    story.tell("the gateway was mended, card.charge was redriven: done on its third attempt")


def kinds_of_handlers(story: Story) -> None:
    where = slow(story.queue)
    story.enqueue("primes.count", {"below": 1_000_000}, tenant="globex", queue=where)
    feeds = [story.harbor.enqueue("feed.fetch", {"name": name}, tenant="acme", queue=where) for name in FEEDS]
    story.jobs.update({f"feed.fetch {name}": feed.id for name, feed in zip(FEEDS, feeds, strict=True)})
    for feed, name in zip(feeds, FEEDS, strict=True):
        story.check(story.harbor.wait(feed, timeout=30) == f"{name} fetched", "an asynchronous task returns its result")
    spans = [(a.started_at, a.finished_at) for feed in feeds for a in story.harbor.job(feed).attempts]
    story.check(max(start for start, _ in spans) < min(end for _, end in spans), "coroutines run side by side")
    story.tell(f"carol, a worker with four slots, ran {len(feeds)} coroutines side by side on one event loop")
    primes = story.ended("primes.count", "done").result
    story.check(primes["primes"] == 78_498 and primes["process"] != os.getpid(), "it ran in another process")
    story.tell(
        f"primes.count kept a core busy in a process of its own, {primes['process']}: {primes['primes']:,} primes"
    )


def cancel(story: Story) -> None:
    story.enqueue("backup.run", {}, tenant="initech", queue=slow(story.queue))
    story.until("backup.run runs", lambda: story.job("backup.run").state == "running")
    asked = time.monotonic()
    story.harbor.cancel(story.jobs["backup.run"])
    job = story.ended("backup.run", "cancelled")
    story.check(job.attempts[-1].error.startswith("stopped after"), "the handler itself stopped")
    story.tell(f"backup.run was cancelled while it ran, and stopped {time.monotonic() - asked:.1f} s later")


def take_over(story: Story, lost: JobView) -> None:
    """The lease of the first delivery ends, and carol gets the second."""

    def look() -> Job | None:
        job = story.job("video.encode").record
        return job if job.deliveries > lost.record.deliveries else None

    taken = story.until("carol takes video.encode over", look)
    ends = lost.record.lease_expires_at
    story.check(
        ends is not None and taken.claimed_at is not None and taken.claimed_at >= ends, "not before it was free"
    )
    story.tell("ada's lease ended: video.encode was taken over, delivery 2, with a token of its own")
    assert lost.record.lease_token is not None
    refusal = ""
    try:
        story.driver.ack(lost.id, lost.record.lease_token)
    except (LeaseLost, JobNotInflight) as error:
        refusal = type(error).__name__
    story.check(refusal, "a token that was overtaken settles nothing")
    story.tell(f"had ada only been slow, her word would not count: an ack with her token is refused ({refusal})")
    video = story.ended("video.encode", "done")
    runs = [(attempt.worker, attempt.outcome.value) for attempt in video.attempts]
    expected = [(story.worker_id("ada"), "lapsed"), (story.worker_id("carol"), "succeeded")]
    story.check(runs == expected, f"video.encode lapses with ada and succeeds with carol, not {runs}")
    story.tell("carol had it, and has finished it: done, once")


def right_on_time(story: Story) -> None:
    digest = story.ended("digest.send", "done")
    late_s = (digest.attempts[0].started_at - digest.due_at).total_seconds()
    story.check(late_s >= 0, "no job starts before its time")
    story.tell(f"digest.send, enqueued to run 2 s later, did so {late_s * 1000:.0f} ms after its moment")
    ticks = story.until("pulse.beat ticks every second", lambda: found if len(found := story.ticks()) >= 3 else None)
    moments = {job.meta["tick"] for job in ticks}
    story.check(len(moments) == len(ticks), "each tick makes one job")
    story.tell(f"pulse.beat, scheduled @every 1s, has ticked {len(ticks)} times so far, one job for each tick")


def burst(story: Story) -> None:
    queue = f"{story.queue}-burst"
    began = time.perf_counter()
    numbers = ({"type": "number.double", "payload": {"number": number}} for number in range(BURST_JOBS))
    many = story.harbor.enqueue_many(numbers, queue=queue)
    enqueued = time.perf_counter()
    tally = story.harbor.worker({queue: 4}, name=story.worker_id("dora"), fleet=False).drain()
    drained = time.perf_counter()
    story.check(tally.done == BURST_JOBS, f"all of the burst is done, but {tally.done} are")
    story.check(story.harbor.job(many[-1]).result == 2 * (BURST_JOBS - 1), "each with its own result")
    story.burst = Burst(BURST_JOBS, enqueued - began, drained - enqueued)
    rate = BURST_JOBS / (drained - enqueued)
    story.tell(
        f"{BURST_JOBS:,} quick jobs: enqueued in {enqueued - began:.2f} s, run by dora alone in "
        f"{drained - enqueued:.2f} s, {rate:,.0f} a second"
    )


def at_rest(story: Story) -> None:
    """After the workers have stopped."""
    own = {worker.id for worker in story.driver.workers()} & set(story.workers)
    story.check(not own, "a worker that stops signs off")
    story.check(not story.counts().get("inflight"), "a worker that stops leaves nothing claimed")
    story.tell("the workers stopped: all of them have signed off, and no job is left claimed")

"""A shop with a busy week behind it, for pictures and for tests in a browser: real jobs, run by a real worker.

Everything follows from one seed. `settle_past` writes lives that have ended through the driver's own operations at
times of the past; the rest is left for workers.
"""

from __future__ import annotations

import json
import random
import time
from datetime import datetime, timedelta

from taskharbor import Context, Harbor
from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Extension, NewJob, Overlap, Progress, RetryUpdate, Schedule, Settlement

TRACE = """Traceback (most recent call last):
  File "/srv/shop/billing.py", line 88, in charge
    answer = gateway.post("/v1/charges", amount=amount)
  File "/srv/shop/gateway.py", line 41, in post
    raise CardDeclined(f"card ending {last4} was declined by bank {bank}")
shop.errors.CardDeclined: card ending {card} was declined by bank {bank}"""
ERRORS = {
    "billing.charge": [TRACE],
    "email.send": [
        "SMTPServerDisconnected: connection to 10.0.{bank}.{card}:587 lost after 3 tries",
        "timed out after 30 s",
    ],
    "report.build": ['ValueError: column "total_{card}" is missing in /data/exports/{bank}.csv'],
    "image.resize": ["OSError: cannot identify image file '/uploads/{bank}/{card}.jpg'"],
}
TYPES = {
    "email.send": ("mail", 0.03),
    "billing.charge": ("billing", 0.08),
    "image.resize": ("media", 0.03),
    "report.build": ("reports", 0.1),
    "search.index": ("default", 0.0),
}
TENANTS = ("acme", "globex", "initech", "umbrella")


def fill(driver: Driver, *, jobs: int = 600, seed: int = 7) -> dict[str, str]:
    """A store as it looks in the middle of a working day. Returns the ids of some jobs to look at."""
    rng = random.Random(seed)
    known = {"dead": _charge_with_a_history(driver)}
    now = driver.now()
    for number in range(jobs):
        kind = rng.choice(list(TYPES))
        queue, failing = TYPES[kind]
        at = now - timedelta(seconds=rng.uniform(0, 290))
        payload = {"order": rng.randrange(10_000, 99_999), "to": f"customer{number}@example.com"}
        tenant = rng.choice(TENANTS)
        driver.enqueue([NewJob(kind, json.dumps(payload).encode(), queue, tenant, max_attempts=3)], at)
        wait, run = rng.expovariate(1 / 0.2), rng.lognormvariate(-2.2, 0.9)
        _live(driver, rng, queue, kind, at + timedelta(seconds=wait), run, failing)
    _waiting(driver, rng, known)
    _settings(driver)
    return known


def _live(driver: Driver, rng: random.Random, queue: str, kind: str, at: datetime, run: float, failing: float) -> None:
    (leased,) = driver.reserve(queue, now=at, lease_for=600, owner=f"worker-{rng.randrange(1, 4)}", types=[kind]) or (
        None,
    )
    if leased is None:
        return
    job, lease = leased
    end = at + timedelta(seconds=run)
    if rng.random() >= failing:
        settled = Settlement.ack(job.id, lease.token, result=b'{"ok":true}', started_at=at)
    else:
        error = rng.choice(ERRORS[kind]).format(
            card=rng.randrange(1000, 9999), bank=rng.randrange(10, 99), last4="0000"
        )
        settled = Settlement.fail(job.id, lease.token, reason=error, code="max_attempts", started_at=at)
    driver.settle([settled], now=end)


def _charge_with_a_history(driver: Driver) -> str:
    """Three attempts with growing pauses, and then no more."""
    begin = driver.now() - timedelta(minutes=4)
    payload = {
        "order": 48213,
        "amount": {"currency": "EUR", "cents": 12_990},
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
        "lines": [{"sku": "TH-100", "count": 2}, {"sku": "TH-220", "count": 1}],
    }
    (answer,) = driver.enqueue(
        [NewJob("billing.charge", json.dumps(payload).encode(), "billing", "acme", max_attempts=3, timeout=30.0,
                idempotency_key="order-48213")],
        begin,
    )  # fmt: skip
    error = TRACE.format(card=4242, bank=17, last4=4242)
    at = begin + timedelta(seconds=3)
    for failures, (ran, pause) in enumerate([(4.1, 21.0), (9.6, 64.0), (6.2, 0.0)], 1):
        (leased,) = driver.reserve("billing", now=at, lease_for=60, owner=f"worker-{failures}")
        end = at + timedelta(seconds=ran)
        if failures < 3:
            update = RetryUpdate(end + timedelta(seconds=pause), failures, error, end)
            settled = Settlement.retry(answer.id, leased.lease.token, update=update, started_at=at)
        else:
            settled = Settlement.fail(answer.id, leased.lease.token, reason=error, code="max_attempts", started_at=at)
        driver.settle([settled], now=end)
        at = end + timedelta(seconds=pause + 5)
    return answer.id


def _waiting(driver: Driver, rng: random.Random, known: dict[str, str]) -> None:
    now = driver.now()
    for queue, kind, count in (
        ("mail", "email.send", 42),
        ("media", "image.resize", 118),
        ("reports", "report.build", 9),
    ):
        at = now - timedelta(seconds=rng.uniform(5, 40))
        driver.enqueue([NewJob(kind, b'{"batch":1}', queue, rng.choice(TENANTS)) for _ in range(count)], at)
    later = now + timedelta(hours=2)
    answers = driver.enqueue(
        [NewJob("newsletter.send", b'{"list":"spring"}', "mail", "acme", run_at=later) for _ in range(25)], now
    )
    known["scheduled"] = answers[0].id
    (leased,) = driver.reserve("reports", now=now - timedelta(seconds=1), lease_for=600, owner="worker-2")
    driver.extend(
        [Extension(leased.job.id, leased.lease.token, 600, now, Progress(1240, 2000, "rows written"))], now=now
    )
    known["running"] = leased.job.id


def _settings(driver: Driver) -> None:
    now = driver.now()
    for number, slots in ((1, 8), (2, 8), (3, 4)):
        driver.heartbeat(
            Worker(f"worker-{number}", f"harbor-{number}", 4000 + number, ("default", "mail", "billing"), slots,
                   "0.1.0", now - timedelta(hours=5 * number), meta={"types": ",".join(TYPES)}),
            now=now - timedelta(seconds=number * 2),
        )  # fmt: skip
    driver.elect("leader", "worker-1", now, 30.0)
    driver.set_limit(Limit("queue", "billing", concurrency=4, rate=20.0))
    driver.set_limit(Limit("tenant", "globex", concurrency=10))
    driver.set_fair("media", True, {"acme": 2.0})
    driver.pause("reports")
    for name, spec, kind in (
        ("nightly-report", "0 3 * * *", "report.build"),
        ("sweep", "*/15 * * * *", "search.index"),
    ):
        driver.put_schedule(
            Schedule(name, spec, kind, b'{"depth":2}', "Europe/Paris", "reports", overlap=Overlap.SKIP,
                     next_run_at=now + timedelta(minutes=7)),
            now=now,
        )  # fmt: skip


def application(url: str) -> Harbor:
    """Its tasks: quick ones, some of which fail as often as they did in the past."""
    harbor = Harbor(url)

    @harbor.task(name="email.send", queue="live", max_attempts=1)
    def send(number: int = 0, batch: int = 0) -> dict[str, int]:
        time.sleep(0.01)
        if number % 10 == 9:
            raise ConnectionError(f"connection to 10.0.0.{number}:587 was lost")
        return {"sent": number}

    @harbor.task(name="billing.charge", queue="billing", max_attempts=1)
    def charge(context: Context, **order: object) -> dict[str, bool]:
        return {"paid": True}

    return harbor

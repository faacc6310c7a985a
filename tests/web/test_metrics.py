from __future__ import annotations

import math
from datetime import timedelta

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from tests.web.feeding import happen
from tests.web.serving import Served

from taskharbor import NewJob
from taskharbor.core.fleet import Worker
from taskharbor.drivers import open_driver
from taskharbor.web import metrics as told
from taskharbor.web import totals
from taskharbor.web.following import Feed
from taskharbor.web.metrics import OPENMETRICS, TEXT, Scrape
from taskharbor.web.watching import Census

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, metric: str, **labels: str) -> float:
    return found[metric, tuple(sorted(labels.items()))]


def test_everything_that_is_promised_is_there(server: Served) -> None:
    driver, now = server.driver, server.driver.now()
    happen(driver, queue="mail", count=3, wait_s=5, run_s=0.5)
    happen(driver, "retry", queue="mail")
    happen(driver, "fail", queue="images", code="max_attempts", count=2)
    driver.enqueue([NewJob("t", queue="mail")], now - timedelta(seconds=30))
    driver.enqueue([NewJob("t", queue="slow")])
    driver.reserve("slow")
    driver.pause("images")
    driver.heartbeat(Worker("w1", slots=7, started_at=now))
    driver.heartbeat(Worker("w0", slots=9, started_at=now), now=now - timedelta(minutes=5))
    driver.elect("fleet", "w1")
    answer = server.client(role="viewer").get("/metrics")
    assert answer.headers["content-type"] == TEXT
    found = samples(answer.text)
    assert value(found, "taskharbor_queue_depth", queue="mail", status="ready") == 2
    assert value(found, "taskharbor_queue_depth", queue="images", status="dlq") == 2
    assert value(found, "taskharbor_queue_scheduled", queue="mail") == 1
    assert 30 <= value(found, "taskharbor_queue_oldest_seconds", queue="mail") < 60
    assert value(found, "taskharbor_queue_oldest_seconds", queue="images") == 0
    assert value(found, "taskharbor_queue_paused", queue="images") == 1
    assert value(found, "taskharbor_inflight") == 1
    assert value(found, "taskharbor_attempts_total", queue="mail", outcome="succeeded") == 3
    assert value(found, "taskharbor_retries_total", queue="mail") == 1
    assert value(found, "taskharbor_dead_total", queue="images", code="max_attempts") == 2
    assert value(found, "taskharbor_wait_seconds_count", queue="mail") == 4
    assert value(found, "taskharbor_wait_seconds_sum", queue="mail") == 15
    assert value(found, "taskharbor_wait_seconds_bucket", queue="mail", le="4.096") == 1
    assert value(found, "taskharbor_wait_seconds_bucket", queue="mail", le="8.192") == 4
    assert value(found, "taskharbor_run_seconds_bucket", queue="mail", le="0.256") == 1
    assert value(found, "taskharbor_run_seconds_bucket", queue="mail", le="+Inf") == 4
    assert value(found, "taskharbor_workers") == 1
    assert value(found, "taskharbor_workers_silent") == 1
    assert value(found, "taskharbor_worker_slots") == 7
    assert value(found, "taskharbor_leader", name="fleet") == 1


def test_nothing_of_other_programs_and_no_name_of_a_worker_is_told(server: Served) -> None:
    now = server.driver.now()
    server.driver.heartbeat(Worker("w@secret-host", hostname="secret-host", slots=7, started_at=now))
    server.driver.elect("fleet", "w@secret-host")
    text = server.client().get("/metrics").text
    assert "secret-host" not in text
    assert {family.name.split("_")[0] for family in text_string_to_metric_families(text)} == {"taskharbor"}


def test_a_tenant_is_told_of_its_own_jobs_alone(server: Served) -> None:
    happen(server.driver, queue="shared", tenant="acme", count=2)
    happen(server.driver, queue="shared", tenant="other", count=3)
    happen(server.driver, "fail", queue="theirs", tenant="other", code="their-code")
    server.driver.pause("theirs")
    text = server.client("acme", "viewer").get("/metrics").text
    found = samples(text)
    assert value(found, "taskharbor_attempts_total", queue="shared", outcome="succeeded") == 2
    assert value(found, "taskharbor_queue_depth", queue="shared", status="done") == 2
    for word in ("theirs", "their-code", "taskharbor_workers", "taskharbor_leader", "other"):
        assert word not in text
    everyone = samples(server.client().get("/metrics").text)
    assert value(everyone, "taskharbor_attempts_total", queue="shared", outcome="succeeded") == 5


def test_a_token_is_needed(server: Served) -> None:
    assert server.with_token(None).get("/metrics").status_code == 401
    for role in ("viewer", "producer", "worker", "operator", "admin"):
        assert server.client("acme", role).get("/metrics").status_code == 200


def test_openmetrics_is_spoken_to_whoever_asks_for_it(server: Served) -> None:
    happen(server.driver)
    accepted = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"
    answer = server.client().get("/metrics", headers={"accept": accepted})
    assert answer.headers["content-type"] == OPENMETRICS
    families = {family.name for family in openmetrics_families(answer.text)}
    assert {"taskharbor_attempts", "taskharbor_queue_depth", "taskharbor_wait_seconds"} <= families


@pytest.mark.parametrize(
    "accept", ["*/*", "", ";;;", "text/plain;version=nonsense", "application/openmetrics-text;version=1e9"]
)
def test_any_accept_header_is_answered(server: Served, accept: str) -> None:
    assert server.client().get("/metrics", headers={"accept": accept}).status_code == 200


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a}b 1\nx{", "🦆", "<script>", "le", "a\x01b"])
def test_odd_names_are_label_values_and_nothing_else(name: str) -> None:
    driver = open_driver("memory://")
    feed = Feed(driver)
    feed.step()
    happen(driver, "fail", queue=name, code="odd" + name)
    feed.step()
    found = samples(Scrape(driver, Census(driver), feed).write().decode())
    assert value(found, "taskharbor_queue_depth", queue=name, status="dlq") == 1
    assert value(found, "taskharbor_dead_total", queue=name, code="odd" + name) == 1


def test_so_many_queues_have_labels_of_their_own_and_the_rest_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MOST_QUEUES", 5)
    monkeypatch.setattr(told, "MOST_QUEUES", 5)
    driver = open_driver("memory://")
    feed = Feed(driver)
    feed.step()
    for number in range(12):
        happen(driver, queue=f"q{number:02}", tenant=f"t{number % 2}")
    driver.enqueue([NewJob("t", queue=f"waiting-{number}", tenant_id="t0") for number in range(9)])
    feed.step()
    for tenant, jobs, ran in ((None, 21, 12), ("t0", 15, 6)):
        found = samples(Scrape(driver, Census(driver), feed, tenant).write().decode())
        queues = {dict(labels)["queue"] for (name, labels) in found if name == "taskharbor_queue_depth"}
        assert len(queues) == 6
        assert "other" in queues
        assert sum(count for (name, _), count in found.items() if name == "taskharbor_queue_depth") == jobs
        assert sum(count for (name, _), count in found.items() if name == "taskharbor_attempts_total") == ran
        assert len({labels for (name, labels) in found if name == "taskharbor_wait_seconds_count"}) == 6


def test_buckets_only_rise_and_end_with_all() -> None:
    driver = open_driver("memory://")
    feed = Feed(driver)
    feed.step()
    for exponent in range(-4, 6):
        happen(driver, wait_s=10.0**exponent)
    feed.step()
    found = samples(Scrape(driver, Census(driver), feed).write().decode())
    buckets = sorted(
        (math.inf if dict(labels)["le"] == "+Inf" else float(dict(labels)["le"]), count)
        for (name, labels), count in found.items()
        if name == "taskharbor_wait_seconds_bucket"
    )
    counts = [count for _, count in buckets]
    assert counts == sorted(counts)
    for bound, count in buckets:
        assert count == sum(10.0**exponent <= bound for exponent in range(-4, 6))


def test_a_process_that_has_not_caught_up_says_so_instead_of_going_back(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.app.state.feed, "catch_up", lambda _: False)
    answer = server.client().get("/metrics")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0

"""Queues, workers and schedules over HTTP."""

from __future__ import annotations

from tests.web.serving import Served

from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import NewJob, Schedule
from taskharbor.web.api import shapes


def test_queues_show_what_waits_and_what_governs_them(server: Served) -> None:
    driver = server.driver
    driver.enqueue([NewJob("a", queue="mail", tenant_id="acme"), NewJob("a", queue="mail", tenant_id="zebra")])
    driver.enqueue([NewJob("a", queue="zoo", tenant_id="zebra")])
    driver.pause("empty")
    driver.set_limit(Limit("queue", "mail", concurrency=4))
    driver.set_limit(Limit("tenant", "zebra", concurrency=2))
    driver.set_fair("mail", weights={"acme": 2.0, "zebra": 3.0})
    everything = server.client(role="viewer").get("/api/v1/queues").json()
    shapes.QueuePage.model_validate(everything)
    assert [(queue["name"], queue["paused"], queue["counts"]["ready"]) for queue in everything["queues"]] == [
        ("empty", True, 0), ("mail", False, 2), ("zoo", False, 1)
    ]  # fmt: skip
    assert everything["queues"][1]["limits"][0]["concurrency"] == 4
    assert everything["queues"][1]["oldest_due"] is not None
    assert [limit["name"] for limit in everything["limits"]] == ["zebra"]
    own = server.client("acme", "viewer").get("/api/v1/queues").json()
    (mail,) = own["queues"]
    assert (mail["name"], mail["counts"]["ready"], mail["weights"]) == ("mail", 1, {"acme": 2.0})
    assert own["limits"] == []


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(server: Served) -> None:
    server.driver.enqueue([NewJob("a", queue="a/b c")])
    client = server.client(role="operator")
    assert client.post("/api/v1/queues/a%2Fb%20c/pause").json() == {"name": "a/b c", "paused": True}
    assert server.driver.reserve("a/b c") == []
    assert client.post("/api/v1/queues/a%2Fb%20c/resume").json() == {"name": "a/b c", "paused": False}
    assert len(server.driver.reserve("a/b c")) == 1


def test_a_queue_whose_name_cannot_be_is_refused(server: Served) -> None:
    client = server.client()
    assert client.post(f"/api/v1/queues/{'q' * 300}/pause").status_code == 422
    assert client.post("/api/v1/queues/%00/pause").status_code == 422


def test_workers_are_shown_with_their_leader_to_those_who_see_all_tenants(server: Served) -> None:
    server.driver.heartbeat(Worker("w1", "host", 12, ("mail",), 10, "1.0"))
    server.driver.elect("maintenance", "w1")
    found = server.client(role="viewer").get("/api/v1/workers").json()
    shapes.WorkerPage.model_validate(found)
    assert [(worker["id"], worker["alive"]) for worker in found["workers"]] == [("w1", True)]
    assert [(leader["holder"], leader["current"]) for leader in found["leaders"]] == [("w1", True)]


def test_a_tenant_sees_and_pauses_its_own_schedules_alone(server: Served) -> None:
    for tenant in ("acme", "zebra"):
        server.driver.put_schedule(Schedule(f"{tenant}/nightly", "0 3 * * *", "report", tenant_id=tenant))
    client = server.client("acme", "operator")
    found = client.get("/api/v1/schedules").json()
    shapes.SchedulePage.model_validate(found)
    assert [schedule["name"] for schedule in found["schedules"]] == ["acme/nightly"]
    assert client.post("/api/v1/schedules/acme%2Fnightly/pause").json() == {"name": "acme/nightly", "paused": True}
    assert server.driver.get_schedule("acme/nightly").paused
    assert client.post("/api/v1/schedules/zebra%2Fnightly/pause").status_code == 404
    assert not server.driver.get_schedule("zebra/nightly").paused
    assert client.post("/api/v1/schedules/acme%2Fnightly/resume").json()["paused"] is False

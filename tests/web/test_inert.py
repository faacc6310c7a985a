"""Whatever stands in a name, an error or a payload, every page has the same elements with the same attributes as if it
were a harmless word; and what programs read can be read, and says exactly what was stored."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.web.serving import Served, served
from tests.web.test_pages_door import check_is_inert
from tests.web.visiting import Page, Visitor

from taskharbor.core.fleet import Worker
from taskharbor.core.limiting import Limit
from taskharbor.core.model import Extension, NewJob, Progress, Schedule
from taskharbor.core.workflow import NewStep, NewWorkflow
from taskharbor.drivers import open_driver

HARMLESS = "harmless"
WORDS = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "closing": "</pre></td></table></main></title></textarea></script>",
    "quotes": "'\"` onmouseover='x' \" autofocus onfocus=x x=\"",
    "comment": "--><!--<![CDATA[ ]]> <?x ?> &lt;b&gt;&#60;i&#62;",
    "template": "{{1234*4321}}{%raw%}{#x#}${1234*4321}#{1234*4321}<%=1234*4321%>{{ self.__init__ }}",
    "formula": "=cmd|' /C calc'!A0,+1+1,-2+3,@SUM(1)",
    "address": "javascript:alert(1)//evil.example/..%2f..\\?a=b&c#d;data:text/html,x",
    "unseen": "\x08\x01\x0b\x1b[31mred\x7f\x85\x9f\xad\u061c\u200b\u200f\u202e\u2066\ufeff\ufffe\U000e0041",
    "breaks": "one\r\ntwo\nthree\u2028four\u2029five\ttab\r\rend: x\n\nevent: overview\ndata: y",
    "huge": "W" * 3000,
    "wide": "\u0301" * 40 + "\U0001f468\u200d\U0001f469" + "\ufdfd" * 20,
    "htmx": '" hx-get="/x" hx-trigger="load" hx-on::load="x" data-hx-get="/x',
}
COMPARED = {
    "class",
    "id",
    "type",
    "method",
    "name",
    "rel",
    "role",
    "for",
    "scope",
    "hx-target",
    "hx-swap",
    "hx-trigger",
    "tabindex",
}
"""Attributes whose values are ours alone; of the others, only that they are there."""
DRAWN = {"path", "rect", "title"}


@contextmanager
def house(word: str) -> Iterator[Served]:
    """A store where everything that can have a name has this one."""
    name, tenant, id = word[:255], word[:64], word[:60] + "-id"
    error = f'Traceback (most recent call last):\n  File "{word}", line 1, in x\nValueError: {word}'
    body = json.dumps({name: [word, {name: word}]}).encode()
    given: dict[str, Any] = {"payload": body, "meta": {word[:200]: word}, "tenant_id": tenant}
    with open_driver("memory://") as driver, served(driver) as running:
        ids = {
            "dead": f"dead {id}"[:64],
            "running": f"running {id}"[:64],
            "done": f"done {id}"[:64],
            "raw": f"raw {id}"[:64],
        }
        driver.enqueue(
            [
                NewJob(name, queue=name, id=each, idempotency_key=f"{kind}{name}"[:255], **given)
                for kind, each in ids.items()
            ]
        )
        driver.enqueue([NewJob(name, word.encode(), "other", tenant, id=f"bytes {id}"[:64])])
        leased = {each.job.id: each.lease.token for each in driver.reserve(name, limit=9, owner=name)}
        driver.fail(ids["dead"], leased[ids["dead"]], reason=error, code=word[:60])
        driver.ack(ids["done"], leased[ids["done"]], result=body)
        driver.release(ids["raw"], leased[ids["raw"]])
        now = driver.now()
        driver.extend([Extension(ids["running"], leased[ids["running"]], 600, now, Progress(1, 2, word))])
        driver.heartbeat(Worker(name, name, 1, (name,), 1, name, now, meta={"types": word}), now=now)
        driver.elect(name, name, now, 600)
        driver.set_limit(Limit("queue", name, concurrency=1))
        driver.set_limit(Limit("type", name, concurrency=1, per="tenant"))
        driver.set_limit(Limit("tenant", tenant, concurrency=1))
        driver.set_fair(name, True, {tenant: 2.0})
        driver.pause(name)
        driver.put_schedule(Schedule(name, "@hourly", name, body, queue=name, tenant_id=tenant, next_run_at=now))
        steps = [NewStep(name, NewJob(name, queue="flow", tenant_id=tenant, payload=body), part=name)]
        driver.start_workflow(NewWorkflow(name, steps, id=f"flow {id}"[:50], tenant_id=tenant))
        running.app.state.feed.catch_up()
        running.ids = [*ids.values(), f"bytes {id}"[:64]]  # type: ignore[attr-defined]
        running.flow = f"flow {id}"[:50]  # type: ignore[attr-defined]
        yield running


def pages(server: Served, word: str) -> dict[str, Page]:
    """Every page there is, and every answer to a mistake, by a name that does not depend on the word."""
    visitor = Visitor(server, server.secret())
    ids: list[str] = server.ids  # type: ignore[attr-defined]
    found = {
        path: visitor.get(path) for path in ("/", "/jobs", "/dlq", "/queues", "/workers", "/schedules", "/workflows")
    }
    for place, id in enumerate(ids):
        found[f"job {place}"] = visitor.get(f"/jobs/{quote(id, safe='')}")
    found["workflow"] = visitor.get(f"/workflows/{quote(server.flow, safe='')}")  # type: ignore[attr-defined]
    group = next(
        each.attributes["href"] or ""
        for each in found["/dlq"].all("a")
        if (each.attributes["href"] or "").startswith("/dlq/")
    )
    found["group"] = visitor.get(group)
    short = {"queue": word[:255], "type": word[:255], "tenant": word[:64]}
    found["search"] = Page(visitor.http.get("/jobs", params={**short, "q": word[:200]}))
    found["found"] = Page(visitor.http.get("/jobs", params=short))
    found["dlq search"] = Page(visitor.http.get("/dlq", params=short))
    preview = visitor.send(found["/jobs"], "/jobs/preview", act="cancel", which="all")
    found["preview"] = Page(preview)
    found["lost"] = visitor.get(f"/jobs/no{quote(word[:60], safe='')}")
    found["nowhere"] = visitor.get(f"/nowhere/{quote(word, safe='')}?{quote(word, safe='')}={quote(word, safe='')}")
    found["history"] = Page(visitor.http.get("/history", params={"span": word}))
    found["theme"] = Page(visitor.send(found["/jobs"], "/theme", theme=word))
    found["login"] = Visitor(server).get(f"/login?next={quote(word, safe='')}")
    found["paused"] = visitor.follow(visitor.send(found["/queues"], "/queues/resume"))
    visitor.send(found["/queues"], "/queues/pause")
    return found


def structure(page: Page) -> Counter[tuple[str, tuple[tuple[str, str | None], ...]]]:
    """How often each element with its attributes is there. Rows are in the order of names, and drawings are to scale:
    neither their order nor the lines in them are the same on any two pages."""

    def kept(name: str, value: str | None) -> str | None:
        if name not in COMPARED:
            return None
        return re.sub("[0-9a-f]{16}$", "HASH", value or "")  # of an error, in the ids of its group

    return Counter(
        (each.tag, tuple((name, kept(name, value)) for name, value in each.attributes.items()))
        for each in page.elements
        if each.tag not in DRAWN
    )


@pytest.fixture(scope="module")
def harmless() -> dict[str, Page]:
    with house(HARMLESS) as server:
        return pages(server, HARMLESS)


@pytest.mark.parametrize("kind", WORDS)
def test_no_word_makes_an_element_or_an_attribute_on_any_page(harmless: dict[str, Page], kind: str) -> None:
    word = WORDS[kind]
    with house(word) as server:
        for name, page in pages(server, word).items():
            usual = harmless[name]
            assert page.status == usual.status, (name, page.status, page.response.text[:300])
            assert page.response.headers["content-type"] == "text/html; charset=utf-8", name
            assert page.response.headers["x-content-type-options"] == "nosniff"
            check_is_inert(page)
            here, there = structure(page), structure(usual)
            assert here == there, (name, here - there, there - here)
            assert {each.tag for each in page.elements} <= {each.tag for each in usual.elements} | DRAWN, name
            assert not [each for each in page.response.text if not (each.isprintable() or each in "\n\t")], name
            if kind == "template":
                assert "5332114" not in page.response.text, name


@pytest.mark.parametrize("kind", WORDS)
def test_programs_read_exactly_what_was_stored(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.web.following.LOOK_S", 0.05)
    word = WORDS[kind]
    name = word[:255]
    with house(word) as server:
        client = server.client()
        jobs = _json(client.get("/api/v1/jobs"))["jobs"]
        assert {job["type"] for job in jobs} == {name}
        done = _json(client.get(f"/api/v1/jobs/{quote(server.ids[2], safe='')}"))  # type: ignore[attr-defined]
        assert done["payload"] == done["result"] == {name: [word, {name: word}]}
        assert done["meta"] == {word[:200]: word}
        assert done["attempt_log"][0]["worker"] == name
        assert word in _json(client.get("/api/v1/dlq"))["jobs"][0]["dlq_reason"]
        assert name in {queue["name"] for queue in _json(client.get("/api/v1/queues"))["queues"]}
        assert _json(client.get("/api/v1/workers"))["workers"][0]["hostname"] == name
        assert _json(client.get("/api/v1/schedules"))["schedules"][0]["name"] == name
        assert name in {queue["name"] for queue in _json(client.get("/api/v1/stats"))["queues"]}
        _check_metrics(client.get("/metrics"), name)
        _check_events(server, client, name)
        again = _json(client.post(f"/api/v1/queues/{quote(name, safe='')}/pause"))
        assert again == {"name": name, "paused": True}
        assert {each.name for each in server.driver.queues() if each.paused} == {name}


def _json(answer: httpx.Response) -> Any:
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text
    assert answer.content.isascii()
    return answer.json()


def _check_metrics(answer: httpx.Response, name: str) -> None:
    assert answer.headers["content-type"].startswith("text/plain; version=")
    queues = {
        sample.labels["queue"]
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if "queue" in sample.labels
    }
    assert name in queues
    assert queues <= {name, "other", "flow"}


def _check_events(server: Served, client: httpx.Client, name: str) -> None:
    """The past from the beginning: one event for each fact, and nothing else between them."""
    start = server.app.state.settings.feed_start
    headers = {} if start is None else {"Last-Event-ID": start}
    server.driver.cancel(server.ids[3])  # type: ignore[attr-defined]
    last = server.ids[4]  # type: ignore[attr-defined]
    facts = []
    with client.stream("GET", "/api/v1/events?seconds=30", headers=headers) as answer:
        server.driver.cancel(last)
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if not line or line.startswith(":"):
                continue
            field, value = line.split(": ", 1)
            assert field in {"id", "event", "data", "retry"}, line
            if field == "data":
                facts.append(json.loads(value))
                if facts[-1]["job_id"] == last:
                    break
    assert {fact["type"] for fact in facts} == {name}

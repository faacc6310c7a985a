"""Every route, every method, two tenants, every role: who gets what. A route that is not in the table fails here."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from tests.web import houses
from tests.web.serving import Served, served
from tests.web.visiting import Visitor

from taskharbor.drivers import open_driver

API = "/api/v1"


class Row(NamedTuple):
    """What a route needs, and what it is sent."""

    needs: str
    """A permission; "nothing" for what anybody gets; "login" for what the door is for."""
    status: int = 200
    """Of the answer to one who may."""
    state: str | None = None
    """Of the job that it is about."""
    body: dict[str, Any] | None = None
    """With TOKEN, ID and NAME in place of what is made for the call."""
    all_tenants: bool = False
    """Only for tokens of all tenants."""


TOKEN, ID, FLOW, SCHEDULE = "*token*", "*id*", "*flow*", "*schedule*"
TABLE: dict[str, Row] = {
    f"POST {API}/jobs": Row("enqueue", 201, body={"type": "new"}),
    f"GET {API}/jobs": Row("read"),
    f"GET {API}/jobs/{{id}}": Row("read", state="done"),
    f"POST {API}/jobs/{{id}}/cancel": Row("cancel", state="ready"),
    f"POST {API}/jobs/{{id}}/retry": Row("retry", state="dead"),
    f"POST {API}/jobs/bulk": Row("enqueue", body={"type": "new"}),
    f"POST {API}/leases": Row("lease", body={"queues": ["none"]}),
    f"POST {API}/leases/{{id}}/ack": Row("lease", state="inflight", body={"token": TOKEN}),
    f"POST {API}/leases/{{id}}/retry": Row("lease", state="inflight", body={"token": TOKEN}),
    f"POST {API}/leases/{{id}}/fail": Row("lease", state="inflight", body={"token": TOKEN, "reason": "no"}),
    f"POST {API}/leases/{{id}}/release": Row("lease", state="inflight", body={"token": TOKEN}),
    f"POST {API}/leases/{{id}}/extend": Row("lease", state="inflight", body={"token": TOKEN}),
    f"GET {API}/dlq": Row("read"),
    f"POST {API}/dlq/redrive": Row("retry", body={"queue": "none"}),
    f"GET {API}/queues": Row("read"),
    f"POST {API}/queues/{{name}}/pause": Row("govern", all_tenants=True),
    f"POST {API}/queues/{{name}}/resume": Row("govern", all_tenants=True),
    f"GET {API}/workers": Row("read", all_tenants=True),
    f"GET {API}/schedules": Row("read"),
    f"POST {API}/schedules/{{name}}/pause": Row("govern"),
    f"POST {API}/schedules/{{name}}/resume": Row("govern"),
    f"GET {API}/stats": Row("read"),
    f"GET {API}/events": Row("read"),
    "GET /metrics": Row("read"),
    "GET /healthz": Row("nothing"),
    "GET /readyz": Row("nothing"),
    "GET /openapi.json": Row("nothing"),
    "HEAD /openapi.json": Row("nothing"),
    "GET /static/{path}": Row("nothing"),
    "GET /favicon.ico": Row("nothing"),
    "GET /login": Row("login", 303),
    "POST /login": Row("login", 401, body={"token": "wrong"}),
    "POST /logout": Row("read", 303, body={}),
    "POST /theme": Row("read", 303, body={"theme": "dark"}),
    "GET /": Row("read"),
    "GET /live": Row("read"),
    "GET /jobs": Row("read"),
    "GET /jobs/{id}": Row("read", state="inflight"),
    "POST /jobs/preview": Row("retry", body={"act": "retry", "which": "all"}),
    "POST /jobs/bulk": Row("retry", 303, body={"act": "retry", "id": ID}, state="dead"),
    "POST /job/retry": Row("retry", 303, state="dead", body={"id": ID}),
    "POST /job/cancel": Row("cancel", 303, state="ready", body={"id": ID}),
    "GET /dlq": Row("read"),
    "GET /dlq/{fingerprint}": Row("read"),
    "POST /dlq/redrive": Row("retry", 303, body={"fingerprint": "0"}),
    "GET /queues": Row("read"),
    "POST /queues/pause": Row("govern", 303, body={"queue": "some"}, all_tenants=True),
    "POST /queues/resume": Row("govern", 303, body={"queue": "some"}, all_tenants=True),
    "POST /queues/limit": Row("govern", 303, body={"queue": "some", "concurrency": "3"}, all_tenants=True),
    "POST /queues/lift": Row("govern", 303, body={"scope": "queue", "name": "some", "per": ""}, all_tenants=True),
    "GET /workers": Row("read", all_tenants=True),
    "GET /schedules": Row("read"),
    "POST /schedules/pause": Row("govern", 303, body={"name": SCHEDULE}),
    "POST /schedules/resume": Row("govern", 303, body={"name": SCHEDULE}),
    "POST /schedules/run": Row("govern", 303, body={"name": SCHEDULE}),
    "GET /workflows": Row("read"),
    "GET /workflows/{id}": Row("read"),
    "POST /workflow/cancel": Row("cancel", 303, body={"id": FLOW}),
    "POST /workflow/redrive": Row("retry", 303, body={"id": FLOW}),
    "GET /history": Row("read", all_tenants=True),
    "GET /history/report": Row("read", 404, all_tenants=True),
}
FOR_ONE_TENANT = [
    (role, tenant) for role in houses.MAY for tenant in ("acme", "*") if (role, tenant) != ("producer", "*")
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("matrix") / "jobs.db"
    with open_driver(f"sqlite:///{path}") as driver:
        driver.migrate()
        for tenant in ("acme", "zebra"):
            houses.furnish(driver, tenant)
        with served(driver) as running:
            running.path = path  # type: ignore[attr-defined]
            yield running


class Caller:
    """One token, as a program and as a person who has logged in with it."""

    def __init__(self, server: Served, role: str, tenant: str) -> None:
        self.driver = server.driver
        secret = server.secret(tenant, role)
        self.program = server.with_token(secret)
        self.visitor = Visitor(server, secret)
        self.csrf = self.visitor.get("/jobs").form("/theme")["fields"]["csrf"]

    def call(self, route: str, row: Row, made: dict[str, str]) -> httpx.Response:
        method, path = route.split()
        for slot, value in (
            ("{id}", made[ID]),
            ("{name}", made[SCHEDULE]),
            ("{fingerprint}", "f"),
            ("{path}", "style.css"),
        ):
            path = path.replace(slot, value)
        if path.startswith("/workflows/"):
            path = f"/workflows/{made[FLOW]}"
        body = (
            None
            if row.body is None
            else {name: made.get(value, value) if isinstance(value, str) else value for name, value in row.body.items()}
        )
        if path.endswith("/events"):
            path += "?seconds=0"
        if path.startswith((API, "/metrics", "/healthz", "/readyz", "/openapi")):
            if path.endswith("/jobs/bulk"):
                lines = {"content": json.dumps(body), "headers": {"content-type": "application/x-ndjson"}}
                return self.program.post(path, **lines)  # type: ignore[arg-type]
            return self.program.request(method, path, json=body)
        if path == "/live":
            with self.visitor.http.stream("GET", path) as answer:
                return httpx.Response(answer.status_code, headers=answer.headers)
        data = None if body is None else {"csrf": self.csrf, **body}
        return self.visitor.http.request(method, path, data=data)

    def make(self, row: Row, tenant: str) -> dict[str, str]:
        """What the call is about, new for each call."""
        id, token = houses.job(self.driver, row.state or "ready", tenant)
        flow = houses.flow(self.driver, tenant) if row.body and FLOW in row.body.values() else self.flow(tenant)
        return {ID: id, TOKEN: token, FLOW: flow, SCHEDULE: f"{tenant}-nightly"}

    def flow(self, tenant: str) -> str:
        return next(each.id for each in self.driver.list_workflows(None, 1000) if each.tenant_id == tenant)


def test_every_route_has_its_row_in_the_table(server: Served) -> None:
    found = houses.routes(server.app).keys()
    assert found - TABLE.keys() == set(), "say in the table who may use these"
    assert TABLE.keys() - found == set(), "these are gone"


@pytest.mark.parametrize(("role", "tenant"), FOR_ONE_TENANT)
def test_each_role_gets_what_the_table_says_and_nothing_else(server: Served, role: str, tenant: str) -> None:
    caller = Caller(server, role, tenant)
    for route, row in TABLE.items():
        for owner in ("acme", "zebra"):
            made = caller.make(row, owner)
            answer = caller.call(route, row, made)
            may = row.needs in ("nothing", "login") or row.needs in houses.MAY[role]
            may = may and (tenant == "*" or not row.all_tenants)
            is_about_one = (
                "{id}" in route
                or "{name}" in route
                or (row.body and {ID, FLOW, SCHEDULE} & set(map(str, row.body.values())))
            )
            expected = row.status if may else 403
            if may and is_about_one and tenant == "acme" and owner == "zebra" and route != "POST /jobs/bulk":
                expected = 404
            if route == "GET /dlq/{fingerprint}":
                expected = 404  # there is no such group
            assert answer.status_code == expected, (route, owner, answer.status_code, answer.text[-400:])
            if route == "POST /jobs/bulk" and owner == "zebra" and tenant == "acme":
                assert server.driver.get(made[ID]).status == "dlq"
        if route == "POST /logout" and row.status == answer.status_code:
            caller = Caller(server, role, tenant)


@pytest.mark.parametrize("role", houses.MAY)
def test_what_is_another_tenants_answers_byte_for_byte_as_what_is_not_there(server: Served, role: str) -> None:
    caller = Caller(server, role, "acme")
    compared = 0
    for route, row in TABLE.items():
        foreign = caller.make(row, "zebra")
        absent = {slot: re.sub("[a-z]", "q", value) for slot, value in foreign.items()} | {TOKEN: foreign[TOKEN]}
        if "{" not in route and not (row.body and set(foreign) & set(map(str, row.body.values()))):
            continue
        if "{path}" in route or "{fingerprint}" in route:
            continue
        seen = [_bytes(caller.call(route, row, made), made) for made in (foreign, absent)]
        assert seen[0] == seen[1], route
        assert seen[0][0] != 200, route
        compared += 1
    assert compared > 20


def _bytes(answer: httpx.Response, made: dict[str, str]) -> tuple[int, str, dict[str, str]]:
    """All of an answer, but the date, what is random in each, and the echo of what was asked for."""
    text = answer.text
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    nonce = re.search(r"'nonce-([^']+)'", headers.get("content-security-policy", ""))
    if nonce:
        text = text.replace(nonce[1], "NONCE")
        headers["content-security-policy"] = headers["content-security-policy"].replace(nonce[1], "NONCE")
    for slot, value in made.items():
        text = text.replace(value, slot)
        headers = {name: each.replace(value, slot) for name, each in headers.items()}
    return answer.status_code, text, headers


@pytest.mark.parametrize("role", houses.MAY)
def test_no_list_page_number_or_search_tells_of_another_tenant(server: Served, role: str) -> None:
    caller = Caller(server, role, "acme")
    server.app.state.feed.catch_up()
    gets = [
        route.split()[1] for route in TABLE if route.startswith("GET ") and "{" not in route and route != "GET /live"
    ]
    for path in gets:
        client = caller.program if path.startswith((API, "/metrics")) else caller.visitor.http
        assert "zebra" not in client.get(f"{path}?seconds=0" if path.endswith("/events") else path).text, path
    with caller.visitor.http.stream("GET", "/live") as live:
        assert "zebra" not in next(line for line in live.iter_lines() if line.startswith("data:"))
    for path, words in (
        (f"{API}/jobs", ("queue=zebra-dead", "text=zebra", "type=zebra.type", "error=zebra")),
        (f"{API}/dlq", ("queue=zebra-dead", "text=zebra", "type=zebra.type", "error=zebra")),
        ("/jobs", ("queue=zebra-dead", "q=zebra", "type=zebra.type", "q=zebra-0001")),
        ("/dlq", ("queue=zebra-dead", "type=zebra.type")),
    ):
        client = caller.program if path.startswith(API) else caller.visitor.http
        for word in words:
            seen = [
                _bytes(client.get(f"{path}?{each}"), {"*word*": each.split("=")[1], "*all*": each})
                for each in (word, word.replace("zebra", "qebra"))
            ]
            assert seen[0] == seen[1], (path, word)
    for word in ("?tenant=zebra",):
        for path in (f"{API}/jobs", f"{API}/dlq", f"{API}/stats"):
            assert caller.program.get(path + word).status_code == 403
        for path in ("/jobs", "/dlq"):
            assert "zebra." not in caller.visitor.http.get(path + word).text


@pytest.mark.parametrize("name", ["tenant", "tenant_id"])
def test_a_body_that_names_a_tenant_is_refused_and_changes_nothing(server: Served, name: str) -> None:
    for tenant in ("acme", "*"):
        caller = Caller(server, "admin", tenant)
        before = server.driver.count()
        for route, row in TABLE.items():
            if not route.startswith(f"POST {API}") or route.endswith(("/pause", "/resume", "/cancel", "/redrive")):
                continue
            made = caller.make(row, "acme")
            before += 1
            answer = caller.call(route, row._replace(body={**(row.body or {}), name: "zebra"}), made)
            if route.endswith("/bulk"):
                assert answer.json()["rejected_count"] == 1, route
            else:
                assert answer.status_code == 422, (route, answer.text)
        assert server.driver.count() == before


def test_to_look_never_changes_anything(server: Served) -> None:
    path: Path = server.path  # type: ignore[attr-defined]
    caller = Caller(server, "admin", "*")
    made = caller.make(Row("read", state="dead"), "acme")
    acts = "?act=retry&id=" + made[ID] + "&which=all&csrf=" + caller.csrf + "&theme=dark&queue=some&pause=1&seconds=0"
    before = _dump(path)
    for route, row in TABLE.items():
        if not route.startswith("GET "):
            continue
        for method in ("GET", "HEAD"):
            for client in (caller.program, caller.visitor.http):
                address = (
                    route.split()[1].replace("{id}", made[ID]).replace("{fingerprint}", "f").replace("{path}", "app.js")
                )
                if address == "/live":
                    with client.stream(method, address) as answer:
                        assert answer.status_code in (200, 303, 405)
                    continue
                for query in ("?seconds=0" if address.endswith("/events") else "", acts):
                    answer = client.request(method, address + query)
                    assert answer.status_code < 500, (route, method)
                    assert answer.status_code != 200 or row.status in (200, 303), route
    # Addresses that change something when they are posted to do nothing when they are looked at.
    for route in TABLE:
        if route.startswith("POST "):
            for method in ("GET", "HEAD"):
                address = route.split()[1].replace("{id}", made[ID]).replace("{name}", "acme-nightly")
                caller.visitor.http.request(method, address + acts)
                caller.program.request(method, address + acts)
    assert _dump(path) == before


def _dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        lines = list(connection.iterdump())
    connection.close()
    return lines


@pytest.mark.parametrize("as_person", [False, True])
def test_other_methods_are_problems_that_say_which_ones_there_are(server: Served, as_person: bool) -> None:
    caller = Caller(server, "admin", "*")
    client = caller.visitor.http if as_person else caller.program
    patterns = houses.routes(server.app)
    for route in TABLE:
        path = route.split()[1]
        address = re.sub("{.*?}", "some", path)
        there = {each.split()[0] for each, pattern in patterns.items() if re.match(pattern, address)}
        for method in ("OPTIONS", "TRACE", "PUT", "PATCH", "DELETE"):
            answer = client.request(method, address)
            assert answer.status_code == 405, (method, address)
            assert set(answer.headers["allow"].split(", ")) >= there - {"HEAD"}, (
                method,
                address,
                answer.headers["allow"],
            )
            kinds = (
                ("application/problem+json", "text/html; charset=utf-8") if as_person else ("application/problem+json",)
            )
            assert answer.headers["content-type"] in kinds, (method, address)
            if answer.headers["content-type"] == "application/problem+json":
                assert answer.json()["type"] == "/problems/method-not-allowed"
            assert "access-control-allow-origin" not in answer.headers

"""Generated calls, more than a thousand: whatever is sent, the server answers as its description says, never with a
5xx."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks as promised
from tests.web.serving import Served, served

from taskharbor.core.model import NewJob, Schedule
from taskharbor.drivers import open_driver
from taskharbor.web import Settings, create_app

# The same calls each time, so that a change is what makes them fail; a longer search is a new one each time.
SEED = os.environ["TASKHARBOR_TEST_SEED"] if "TASKHARBOR_FUZZ_EXAMPLES" in os.environ else "harbor"
EXAMPLES = {
    store: int(os.environ.get("TASKHARBOR_FUZZ_EXAMPLES", count)) for store, count in (("memory", 20), ("sqlite", 8))
}
"""Calls of one operation, of one kind, on each store. There are about a hundred such sets."""
NDJSON = "application/x-ndjson"
TENANTS = ("acme", "zebra")
ROLES = ("admin", "operator", "producer", "worker", "viewer")
CHECKS: list[Any] = [
    schemathesis.checks.not_a_server_error,
    promised.status_code_conformance,
    promised.content_type_conformance,
    promised.response_headers_conformance,
    promised.response_schema_conformance,
]
UNTOLD = {
    # What no schema can say: an id of an event must be of this store, and the lines of a bulk request are judged alone.
    GenerationMode.POSITIVE: {"GET /api/v1/events"},
    GenerationMode.NEGATIVE: {"GET /api/v1/events", "POST /api/v1/jobs/bulk"},
}


def described() -> dict[str, Any]:
    """The description, without its tokens: the test has its own, and wrong ones are tested elsewhere."""
    document: dict[str, Any] = json.loads(json.dumps(create_app(Settings("memory://")).openapi()))
    del document["security"], document["components"]["securitySchemes"]
    return document


SCHEMA = schemathesis.openapi.from_dict(described())
OPERATIONS = {each.ok().label: each.ok() for each in SCHEMA.get_all_operations()}
SOON = datetime(2000, 1, 3, tzinfo=UTC).replace(tzinfo=None)  # hypothesis adds the zone
schemathesis.openapi.format(
    "date-time",
    st.datetimes(
        SOON.replace(1970), SOON.replace(8998), timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3))])
    ).map(datetime.isoformat),
)


@schemathesis.serializer(NDJSON)
def lines(context: Any, value: Any) -> bytes:
    """What was made up, twice, with what else may stand between."""
    line = json.dumps(value).encode() if not isinstance(value, bytes) else value
    return line + b"\n\n  \r\n" + line


class House:
    """A server with something of every kind in it, for two tenants and all roles."""

    def __init__(self, server: Served, store: str) -> None:
        self.server = server
        self.store = store
        self.driver = server.driver
        self.sessions = [self._session("*", "admin")] * 4
        self.sessions += [self._session(tenant, role) for tenant in TENANTS for role in ROLES]
        for tenant in TENANTS:
            self.driver.put_schedule(Schedule(f"nightly/{tenant}", "@daily", "t", tenant_id=tenant))
        self.made = 0
        self.statuses: dict[GenerationMode, Counter[int]] = {mode: Counter() for mode in GenerationMode}

    def _session(self, tenant: str, role: str) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {self.server.secret(tenant, role)}"
        return session

    def job(self, state: str, tenant: str) -> tuple[str, str]:
        """A new job in this state, and its lease token."""
        self.made += 1
        queue, type = f"{state} of {tenant}", f"type {self.made}"
        (id,) = (each.id for each in self.driver.enqueue([NewJob(type, b'{"a": 1}', queue, tenant, max_attempts=2)]))
        if state == "ready":
            return id, "none"
        ((_, lease),) = self.driver.reserve(queue, types=[type], lease_for=3600)
        if state == "dead":
            self.driver.fail(id, lease.token, reason="Traceback:\nno")
        if state == "done":
            self.driver.ack(id, lease.token, result=b"[1]")
        return id, lease.token

    def call(self, case: Case, session: requests.Session) -> Any:
        return case.call(base_url=self.server.url, session=session, timeout=30)


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path_factory.mktemp('fuzz')}/jobs.db"
    with open_driver(url) as driver:
        driver.migrate()
        with served(driver, max_body=200_000, max_bulk=300_000) as server:
            yield House(server, request.param)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_operation_answers_as_described_whatever_it_is_sent(
    house: House, label: str, mode: GenerationMode, request: pytest.FixtureRequest
) -> None:
    operation = OPERATIONS[label]
    if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body or operation.headers):
        return  # an operation that takes nothing, or any text, cannot be told anything wrong
    checks = list(CHECKS)
    if label not in UNTOLD[mode]:
        checks.append(
            promised.positive_data_acceptance if mode is GenerationMode.POSITIVE else promised.negative_data_rejection
        )
    statuses: Counter[int] = Counter()

    @seed(f"{SEED}:{request.node.nodeid}")
    @settings(
        max_examples=EXAMPLES[house.store],
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def call(case: Case, data: st.DataObject) -> None:
        _use_what_is_there(house, case, data)
        _be_quick(case)
        if mode is GenerationMode.POSITIVE:
            _agree(case)
        session = data.draw(st.sampled_from(house.sessions), label="session")
        answer = house.call(case, session)
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=checks)
        assert answer.headers["x-content-type-options"] == ["nosniff"]

    call()
    house.statuses[mode] += statuses


@pytest.mark.slow
def test_what_was_sent_met_something_that_is_there(house: House) -> None:
    good, bad = house.statuses[GenerationMode.POSITIVE], house.statuses[GenerationMode.NEGATIVE]
    if good.total() > 300:  # else this was run alone, or with a part of the others
        assert good[200] + good[201] > good.total() / 10, good
        assert {403, 404, 409} <= good.keys(), good
        assert bad[400] + bad[422] > bad.total() / 10, bad


def _use_what_is_there(house: House, case: Case, data: st.DataObject) -> None:
    """Ids, names and tokens that exist, most of the time."""
    path = case.path_parameters
    if not path or not data.draw(st.integers(0, 4), label="exists"):
        return
    tenant = data.draw(st.sampled_from(TENANTS), label="tenant")
    if "name" in path:
        path["name"] = f"nightly/{tenant}"
        return
    state = data.draw(st.sampled_from(("inflight", "inflight", "inflight", "ready", "dead", "done")), label="state")
    if case.path.endswith(("/jobs/{id}/retry", "/jobs/{id}/cancel")):
        state = data.draw(st.sampled_from(("inflight", "ready", "dead", "done")), label="state")
    path["id"], token = house.job(state, tenant)
    sent = case.body.get("token") if isinstance(case.body, dict) else None
    if (
        isinstance(sent, str)
        and 0 < len(sent) <= 64
        and "\0" not in sent
        and data.draw(st.integers(0, 4), label="token")
    ):
        case.body["token"] = token


def _be_quick(case: Case) -> None:
    """Nobody waits for a stream or for work."""
    if case.path.endswith("/events"):
        case.query = {**(case.query or {}), "seconds": 0}
    if isinstance(case.body, dict):
        wait = case.body.get("wait")
        if isinstance(wait, (int, float)) and 0 <= wait <= 30:
            case.body["wait"] = 0


def _agree(case: Case) -> None:
    """What one field says about another stands in no schema."""
    if isinstance(case.body, dict) and {"key", "unique", "on_duplicate"} & case.body.keys():
        case.headers.pop("idempotency-key", None)
        case.body["key"] = case.body.get("key") or "a key"
    if isinstance(case.body, dict) and case.body.get("expires_at"):
        case.body["expires_at"] = "8999-01-01T00:00:00Z"

"""What no description can make up: bytes that are no JSON, addresses that lead nowhere, forms full of anything."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_from_bytes

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.web.serving import Served, served
from tests.web.visiting import Visitor

from taskharbor.core.model import NewJob, Schedule
from taskharbor.core.workflow import NewStep, NewWorkflow
from taskharbor.drivers import open_driver

# The same calls each time, so that a change is what makes them fail; a longer search is a new one each time.
SEED = os.environ["TASKHARBOR_TEST_SEED"] if "TASKHARBOR_FUZZ_EXAMPLES" in os.environ else "harbor"
EXAMPLES = 10 * int(os.environ.get("TASKHARBOR_FUZZ_EXAMPLES", "20"))
API = "/api/v1"
POSTS = (
    *(f"{API}/jobs", f"{API}/jobs/bulk", f"{API}/jobs/ready/cancel", f"{API}/jobs/ready/retry", f"{API}/leases"),
    *(f"{API}/leases/held/{how}" for how in ("ack", "retry", "fail", "release", "extend")),
    *(f"{API}/dlq/redrive", f"{API}/queues/q/pause", f"{API}/schedules/s/resume"),
)
GETS = (
    *(f"{API}/jobs", f"{API}/jobs/ready", f"{API}/dlq", f"{API}/queues", f"{API}/workers", f"{API}/schedules"),
    *(f"{API}/stats", "/metrics", "/healthz", "/readyz", "/openapi.json", "/", "/jobs", "/jobs/ready", "/dlq"),
    *("/dlq/0123456789abcdef", "/queues", "/workers", "/schedules", "/workflows", "/history", "/history/report"),
    *("/login", "/static/style.css", "/favicon.ico"),
)
FORMS = (
    *("/login", "/theme", "/jobs/preview", "/jobs/bulk", "/job/retry", "/job/cancel", "/dlq/redrive"),
    *("/queues/pause", "/queues/resume", "/queues/limit", "/queues/lift", "/schedules/pause", "/schedules/resume"),
    *("/schedules/run", "/workflow/cancel", "/workflow/redrive"),
)
TYPES = ("application/json", "application/x-ndjson", "text/plain", "application/JSON; charset=latin-1", "a/b", "", ";")
TOKENS = """{ } [ ] " , : null true NaN Infinity -0 1e999 "type" "queues" "token" {"type":"a"} {"type":"a","type":"b"}
{"type":"a","payload": {"token":"t","result": {"queues":["q"],"limit": {"queues":["q"]} {"type":"a","run_at":"
0001-01-01
9999-12-31T23:59:59Z "} {"type":"a","delay": 1e308} -1} {"type":"\\u0000"} "\\ud800"} \\ud800"""
BYTES = (b"\n", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"9" * 5000, b"1" * 19, b"[" * 3000)
PARTS = (*TOKENS.encode().split(), *BYTES, b"]" * 3000, b'{"a":' * 2000)
NAMES = """status state queue type tenant text q error code cursor limit span next v seconds csrf token name scope per
id act which rate reset burst concurrency fingerprint theme"""
SHORT = """ready held s q all retry cancel yes 0 -1 1e999 nan 10/s 1/0 after: after:x % %00 %zz %ff ../../etc/passwd
//evil.example /\\evil.example https://evil.example flow dark queue"""
LONG = ("", " ", "9" * 400, "x" * 3000, "\x00", "\ud800", "\r\nSet-Cookie: a=b")
WORDS = NAMES.split()
VALUES = st.one_of(st.sampled_from((*SHORT.split(), *LONG)), st.text(max_size=30))
NESTING = b"".join


def small(request: pytest.FixtureRequest) -> Any:
    """As many examples as there is time for, and the same ones for the same seed of the run."""

    def decorate(test: Any) -> Any:
        bounded = settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        return seed(f"{SEED}:{request.node.nodeid}")(bounded(test))

    return decorate


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with open_driver("memory://") as driver:
        driver.enqueue([NewJob("t", b"{}", "other", id="ready"), NewJob("t", b"{}", "q", id="held")])
        driver.reserve("q")
        driver.put_schedule(Schedule("s", "@daily", "t"))
        driver.start_workflow(NewWorkflow("w", [NewStep("a", NewJob("t", queue="flow"))], id="flow"))
        with served(driver, max_body=20_000, max_bulk=30_000) as running:
            yield running


@pytest.fixture(scope="module")
def admin(server: Served) -> httpx.Client:
    return server.client()


def check(answer: httpx.Response, *, page: bool = False) -> None:
    """No 5xx, and every error is a problem document, or a page where a person asks."""
    assert answer.status_code < 500, (answer.request.url, answer.status_code, answer.text[:500])
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.status_code >= 400:
        kind = answer.headers["content-type"]
        if page:
            assert kind.startswith(("text/html; charset=utf-8", "application/problem+json")), kind
        else:
            assert kind == "application/problem+json", kind
            assert answer.request.method == "HEAD" or answer.json()["status"] == answer.status_code


@pytest.mark.slow
def test_bytes_of_any_kind_are_answered_with_a_problem_at_worst(
    server: Served, admin: httpx.Client, request: pytest.FixtureRequest
) -> None:
    statuses: Counter[int] = Counter()
    body = st.one_of(st.lists(st.sampled_from(PARTS), max_size=8).map(NESTING), st.binary(max_size=60))

    @small(request)
    @given(path=st.sampled_from(POSTS), type=st.sampled_from((TYPES[0], TYPES[0], *TYPES)), body=body)
    def call(path: str, type: str, body: bytes) -> None:
        given_type = "application/x-ndjson" if path.endswith("/bulk") and type == TYPES[0] else type
        answer = admin.post(path, content=body, headers={"Content-Type": given_type})
        check(answer)
        statuses[answer.status_code] += 1

    call()
    assert len(statuses) > 2, "bodies of several fates"


@pytest.mark.slow
def test_addresses_and_queries_of_any_kind_never_break_anything(
    server: Served, admin: httpx.Client, request: pytest.FixtureRequest
) -> None:
    visitor = Visitor(server, server.secret())
    wild = st.one_of(
        st.text(max_size=20).map(lambda text: quote(text, errors="replace")),
        st.binary(max_size=9).map(quote_from_bytes),
    )
    path = st.one_of(
        st.sampled_from(GETS),
        st.builds(lambda start, end: f"{start}/{end}", st.sampled_from((*GETS, *POSTS)), wild),
    )
    pairs = st.lists(st.tuples(st.sampled_from(WORDS), VALUES), max_size=4)

    @small(request)
    @given(
        path=path, pairs=pairs, as_person=st.booleans(), method=st.sampled_from(("GET", "GET", "HEAD", "POST", "PUT"))
    )
    def call(path: str, pairs: list[tuple[str, str]], as_person: bool, method: str) -> None:
        query = "&".join(f"{name}={quote(value, errors='replace')}" for name, value in pairs)
        client = visitor.http if as_person else admin
        check(client.request(method, f"{path}?{query}" if query else path), page=as_person or not path.startswith(API))

    call()


@pytest.mark.slow
def test_forms_full_of_anything_are_pages_or_ways_back_to_one(server: Served, request: pytest.FixtureRequest) -> None:
    visitor = Visitor(server, server.secret())
    csrf = visitor.get("/queues").form("/theme")["fields"]["csrf"]
    pairs = st.lists(st.tuples(st.sampled_from(WORDS), VALUES), max_size=6)

    @small(request)
    @given(path=st.sampled_from(FORMS), pairs=pairs)
    def call(path: str, pairs: list[tuple[str, str]]) -> None:
        fields = [("csrf", csrf), *((name, value) for name, value in pairs if name != "csrf")]
        body = "&".join(f"{name}={quote(value, errors='replace')}" for name, value in fields)
        answer = visitor.http.post(path, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
        check(answer, page=True)
        if answer.status_code == 303:
            assert answer.headers["location"].startswith("/")
            assert answer.headers["location"][1:2] not in ("/", "\\")
            assert "\n" not in answer.headers["location"]

    call()
    assert visitor.get("/queues").status == 200

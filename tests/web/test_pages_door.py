"""In and out: sessions, forms from elsewhere, and what a page never holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.web.serving import Served, served
from tests.web.visiting import Page, Visitor, said

from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with open_driver("memory://") as driver, served(driver) as running:
        driver.enqueue([NewJob("mail", queue="post", tenant_id="acme", id="one")])
        running.secret()
        yield running


def test_whoever_is_not_known_is_sent_to_the_login_and_from_there_to_where_they_wanted_to_go(server: Served) -> None:
    visitor = Visitor(server)
    answer = visitor.http.get("/jobs?queue=post")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fjobs%3Fqueue%3Dpost"
    login = visitor.get(answer.headers["location"])
    sent = visitor.send(login, "/login", token=server.secret())
    assert (sent.status_code, sent.headers["location"]) == (303, "/jobs?queue=post")
    assert visitor.get("/jobs?queue=post").status == 200


@pytest.mark.parametrize(
    "place", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "x"]
)
def test_the_login_leads_to_no_other_site(server: Served, place: str) -> None:
    visitor = Visitor(server)
    login = visitor.get("/login")
    sent = visitor.send(login, "/login", token=server.secret(), next=place)
    assert sent.headers["location"] == "/"


@pytest.mark.parametrize("secret", ["", "hello", "th_000000000000_" + "A" * 43])
def test_a_wrong_token_opens_nothing(server: Served, secret: str) -> None:
    visitor = Visitor(server)
    sent = visitor.send(visitor.get("/login"), "/login", token=secret)
    assert sent.status_code == 401
    assert "unknown, revoked or expired" in sent.text
    assert visitor.http.get("/jobs").status_code == 303


def test_the_cookie_is_for_the_server_alone_and_does_not_hold_the_token(server: Served) -> None:
    secret = server.secret()
    visitor = Visitor(server)
    sent = visitor.send(visitor.get("/login"), "/login", token=secret)
    cookie = sent.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert secret.rpartition("_")[2] not in cookie
    page = visitor.get("/")
    assert secret.rpartition("_")[2] not in page.response.text


def test_a_login_begins_a_session_that_was_not_there_before(server: Served) -> None:
    visitor = Visitor(server)
    login = visitor.get("/login")
    before = visitor.http.cookies["taskharbor_session"]
    visitor.send(login, "/login", token=server.secret())
    assert visitor.http.cookies["taskharbor_session"] != before
    # What a form of the time before carries is worth nothing now.
    assert visitor.send(login, "/login", token=server.secret()).status_code == 403


def test_a_revoked_token_ends_its_sessions_at_once(server: Served) -> None:
    secret = server.secret()
    visitor = Visitor(server, secret)
    assert visitor.get("/jobs").status == 200
    server.driver.revoke_token(secret.split("_")[1])
    assert visitor.http.get("/jobs").headers["location"].startswith("/login")


def test_after_the_way_out_there_is_no_way_in_but_the_login(server: Served) -> None:
    visitor = Visitor(server, server.secret())
    assert visitor.send(visitor.get("/"), "/logout").headers["location"] == "/login"
    assert visitor.http.get("/").headers["location"] == "/login"


def test_a_cookie_that_was_changed_or_signed_by_somebody_else_is_none(server: Served) -> None:
    visitor = Visitor(server, server.secret())
    cookie = visitor.http.cookies["taskharbor_session"]
    for changed in (cookie[:-2] + "xx", "x" + cookie, cookie.replace(".", ""), "a" * 5_000):
        visitor.http.cookies.clear()
        visitor.http.cookies["taskharbor_session"] = changed
        assert visitor.http.get("/").status_code == 303


def test_a_change_needs_what_a_page_of_the_same_session_carries(server: Served) -> None:
    visitor, other = Visitor(server, server.secret()), Visitor(server, server.secret())
    foreign = other.get("/queues").form("/queues/pause", queue="post")["fields"]["csrf"]
    own = visitor.get("/queues").form("/queues/pause", queue="post")["fields"]["csrf"]
    for csrf in ({}, {"csrf": ""}, {"csrf": foreign}, {"csrf": own[:-1]}, {"csrf": "ü"}):
        assert visitor.http.post("/queues/pause", data={"queue": "post", **csrf}).status_code == 403
    assert not any(each.paused for each in server.driver.queues())


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_change_that_a_page_from_elsewhere_asks_for_is_refused(server: Served, headers: dict[str, str]) -> None:
    visitor = Visitor(server, server.secret())
    form = visitor.get("/queues").form("/queues/pause", queue="post")
    assert visitor.http.post("/queues/pause", data=form["fields"], headers=headers).status_code == 403
    assert not any(each.paused for each in server.driver.queues())


def test_a_link_from_another_site_finds_its_page_although_the_cookie_stays_at_home(server: Served) -> None:
    stranger = Visitor(server)
    bounced = stranger.get("/jobs/one", **{"Sec-Fetch-Site": "cross-site"})
    assert bounced.status == 200
    assert any(each.attributes.get("http-equiv") == "refresh" for each in bounced.all("meta"))
    assert stranger.http.get("/jobs/one", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 303


def test_every_page_has_a_strict_policy_with_a_nonce_of_its_own(server: Served) -> None:
    visitor = Visitor(server, server.secret())
    nonces = set()
    for path in (
        "/",
        "/jobs",
        "/jobs/one",
        "/dlq",
        "/queues",
        "/workers",
        "/schedules",
        "/workflows",
        "/history",
        "/x",
    ):
        page = visitor.get(path)
        policy = page.response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'nonce-")
        assert "unsafe" not in policy
        assert page.response.headers["x-frame-options"] == "DENY"
        assert page.response.headers["cache-control"] == "no-store"
        nonces.add(policy)
        check_is_inert(page)
    assert len(nonces) == 10


def check_is_inert(page: Page) -> None:
    """Nothing in it that the policy would have to stop."""
    policy = page.response.headers["content-security-policy"]
    for element in page.elements:
        assert "style" not in element.attributes, element
        assert not [name for name in element.attributes if name.startswith("on")], element
        if element.tag == "script":
            assert element.attributes["src"], "scripts come from files"
            assert f"'nonce-{element.attributes['nonce']}'" in policy
        for name in ("src", "href", "action", "hx-get", "hx-post"):
            value = element.attributes.get(name)
            assert value is None or value.startswith(("/", "#")), element


def test_a_lost_reader_gets_a_page_and_a_program_gets_a_document(server: Served) -> None:
    visitor = Visitor(server, server.secret())
    page = visitor.get("/nowhere")
    assert page.status == 404
    assert page.all("h1")[0].text == "There is nothing here"
    answer = visitor.http.get("/nowhere", headers={"accept": "*/*"})
    assert answer.headers["content-type"] == "application/problem+json"
    api = visitor.http.get("/api/v1/nowhere")
    assert api.headers["content-type"] == "application/problem+json"


def test_what_goes_wrong_here_is_told_with_a_number_that_is_in_the_log(
    server: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = Visitor(server, server.secret())

    def fail() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(server.driver, "workers", fail)
    with caplog.at_level(logging.ERROR, "taskharbor.web"):
        page = visitor.get("/workers")
    assert page.status == 500
    assert "secret detail" not in page.response.text
    assert page.all("code")[0].text in caplog.text


def test_colours_are_chosen_and_kept(server: Served) -> None:
    visitor = Visitor(server, server.secret())
    page = visitor.get("/jobs?queue=post")
    assert page.all("html")[0].attributes["data-theme"] == "auto"
    answer = visitor.send(page, "/theme", theme="dark")
    assert answer.headers["location"] == "/jobs?queue=post"
    assert visitor.get("/jobs").all("html")[0].attributes["data-theme"] == "dark"
    assert visitor.send(page, "/theme", theme="mauve").status_code == 422


def test_without_tokens_everybody_on_this_machine_is_in_and_forms_are_guarded_all_the_same() -> None:
    with open_driver("memory://") as driver, served(driver, open=True) as server:
        driver.enqueue([NewJob("mail", queue="post")])
        visitor = Visitor(server)
        page = visitor.get("/queues")
        assert "no token is configured" in page.text
        assert visitor.http.post("/queues/pause", data={"queue": "post"}).status_code == 403
        paused = visitor.follow(visitor.send(page, "/queues/pause", {"queue": "post"}))
        assert said(paused).startswith("post is paused")
        assert visitor.get("/login").response.status_code == 303
        assert visitor.http.get("/", headers={"Host": "evil.example"}).status_code == 403
        # The first token shuts the door.
        server.secret()
        server.app.state.access._look_again_at = 0.0
        assert visitor.http.get("/queues").headers["location"].startswith("/login")


def test_files_are_kept_by_browsers_as_long_as_they_are_the_same(server: Served) -> None:
    page = Visitor(server, server.secret()).get("/")
    for element in page.elements:
        path = element.attributes.get("src" if element.tag == "script" else "href") or ""
        if path.startswith("/static/"):
            answer = Visitor(server).http.get(path)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
    assert Visitor(server).http.get("/static/../app.py").status_code == 404
    assert Visitor(server).http.get("/static/%2e%2e/app.py").status_code == 404

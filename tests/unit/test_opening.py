"""From a URL to a driver, without a word of the password."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidURL, MissingExtra
from taskharbor.core.limits import Limits
from taskharbor.drivers import opening
from taskharbor.drivers.opening import absolute, check_prefix, open_driver, parse_url, redacted

SECRET = "s3cr3t"
WITH_SECRETS = [
    f"postgresql://user:{SECRET}@host:5432/database",
    f"postgresql://:{SECRET}@host/database",
    f"mysql://user:{SECRET}@host/database?charset=utf8mb4",
    f"postgresql://user@host/database?password={SECRET}",
    f"postgresql://user@host/database?sslpassword={SECRET}&sslmode=require",
    f"postgresql://user:{SECRET}%40%2F@host/database",
]
UNREADABLE = [
    f"postgresql://user:a/{SECRET}@host/database",
    f"postgresql://user:a?{SECRET}@host/database",
    f"postgresql://user:a#{SECRET}@host/database",
    f"postgresql://user:a[{SECRET}@host/database",
    f"mariadb://user:a@{SECRET}@host/database",
    f"postgresql://user:{SECRET} x@host/database",
    f"postgresql://user:{SECRET}\n@host/database",
    f"postgresql://user:{SECRET}%zz@host/database",
    f"postgresql://user:{SECRET}%2@host/database",
    f"postgresql://user:{SECRET}%00@host/database",
    f"postgresql://user:p@{SECRET}@host/database",
    f"postgresql://user:{SECRET}\ud800@host/database",
    f"postgresql:user:{SECRET}@host/database",
]

KEYWORDS = [
    f"host=127.0.0.1 password={SECRET} dbname=x",
    f"password='a {SECRET}' host=127.0.0.1",
    f"host=127.0.0.1 PASSWORD = {SECRET} hostaddr=::1",
    f"password={SECRET} options=http://host",
]


@pytest.mark.parametrize("text", [*KEYWORDS, SECRET, f"{SECRET}@host", f"a_{SECRET}://host"])
def test_what_is_no_url_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidURL, match=r"not a store URL: .*postgresql://user@host/database") as caught:
        parse_url(text)
    assert SECRET not in str(caught.value)


def test_of_a_url_without_slashes_the_scheme_is_shown() -> None:
    with pytest.raises(InvalidURL, match=r"not a store URL \(postgresql:…\): .*two slashes"):
        parse_url(f"postgresql:user:{SECRET}@host/database")


@pytest.mark.parametrize("url", WITH_SECRETS + UNREADABLE[:-1] + KEYWORDS)
def test_a_redacted_url_does_not_show_the_password(url: str) -> None:
    assert SECRET not in redacted(url)
    assert "***" in redacted(url)


@pytest.mark.parametrize("url", WITH_SECRETS)
def test_a_parsed_url_does_not_show_the_password_when_printed(url: str) -> None:
    parsed = parse_url(url)
    assert SECRET not in repr(parsed)
    assert SECRET not in f"{parsed}"


@pytest.mark.parametrize("url", UNREADABLE)
def test_a_url_whose_password_breaks_it_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidURL) as caught:
        parse_url(url)
    assert SECRET not in str(caught.value)
    assert "%2F" in str(caught.value) or url.startswith("postgresql:user")


@given(st.text(st.characters(codec="utf-8", exclude_characters=":@/?#[]%*\n\r\t", min_codepoint=33), min_size=4))
def test_no_password_gets_through_redaction(password: str) -> None:
    url = f"postgresql://u:{password}@h/d"
    assert redacted(url) == "postgresql://u:***@h/d"


@pytest.mark.parametrize(
    "url", ["memory://", "memory://name", "sqlite:///jobs.db", "sqlite:////var/jobs.db", "mysql://user@host/database"]
)
def test_a_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    assert redacted(url) == url


@pytest.mark.parametrize("url", ["", "jobs.db", "sqlite:jobs.db", None, 5, "/var/jobs.db"])
def test_what_is_no_url_is_refused_with_an_example_of_one(url: object) -> None:
    with pytest.raises(InvalidURL, match="sqlite:///jobs.db"):
        open_driver(url)  # type: ignore[arg-type]


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidURL, match=r"unknown store scheme 'redis': known are memory://, .*postgresql://"):
        open_driver("redis://localhost")


@pytest.mark.parametrize(
    "prefix",
    ["", "1a", "_a", "A", "th-", "th_; DROP TABLE x", 'th"', "th'", "th`", "th_\n", "ｔｈ", "x" * 25, "a b", "th.%s"],
)
def test_a_prefix_that_is_more_than_a_plain_name_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidURL, match="prefix must be"):
        check_prefix(prefix)


@pytest.mark.parametrize("prefix", ["th_", "a", "jobs2_", "x" * 24])
def test_a_plain_name_is_a_prefix(prefix: str) -> None:
    assert parse_url(f"sqlite:///jobs.db?prefix={prefix}").prefix == prefix


def test_our_options_are_taken_out_and_the_others_left_for_the_client_library() -> None:
    parsed = parse_url("postgresql://u@h/d?prefix=x_&sslmode=require&max_payload=10")
    assert parsed.rest == "postgresql://u@h/d?sslmode=require"
    assert parsed.prefix == "x_"
    assert parsed.limits.max_payload_bytes == 10


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://?zz=1", "unknown option 'zz': memory:// takes max_payload"),
        ("json:///jobs?zz=1", "unknown option 'zz': json:// takes max_payload"),
        ("json:///jobs?prefix=a_", "unknown option 'prefix'"),
        ("sqlite:///jobs.db?zz=1", "unknown option 'zz': sqlite:// takes .*max_payload"),
        ("postgresql://h/d?zz=1", "unknown option 'zz' in the URL: known are max_size, .*sslmode"),
        ("mysql://h/d?zz=1", "unknown option 'zz' in the URL: known are .*max_payload"),
        ("sqlite:///jobs.db?prefix=a_&prefix=b_", "'prefix' is in the URL twice"),
        ("postgresql://h/d?sslmode=require&sslmode=disable", "'sslmode' is in the URL twice"),
        ("sqlite:///jobs.db#part", "%23"),
        ("memory://name#", "%23"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused_on_every_store(url: str, message: str) -> None:
    with pytest.raises(InvalidURL, match=message):
        open_driver(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://h:99999/d", "the port must be a number from 1 to 65535, got '99999'"),
        ("postgresql://h:abc/d", "the port must be a number .*'abc'"),
        ("postgresql://h/d?port=0", "the port must be a number .*'0'"),
        ("postgresql://h/d?sslmode=foo", "sslmode must be one of disable, .*verify-full, got 'foo'"),
        ("postgresql://h/d?target_session_attrs=primry", "must be one of any, .*got 'primry'"),
        ("postgresql://h/d?connect_timeout=soon", "connect_timeout must be a number of seconds, got 'soon'"),
    ],
)
def test_what_no_postgresql_server_could_answer_is_a_mistake_in_the_url(url: str, message: str) -> None:
    with pytest.raises(InvalidURL, match=message):
        open_driver(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://", {}),
        ("postgresql:///shop", {"dbname": "shop"}),
        ("postgresql:///shop?host=/var/run/postgresql", {"dbname": "shop", "host": "/var/run/postgresql"}),
        ("postgresql://%2Fvar%2Frun/shop", {"dbname": "shop", "host": "/var/run"}),
        ("postgresql://ada@/shop", {"dbname": "shop", "user": "ada"}),
        (
            "postgres://a:1,b/shop?sslmode=require",
            {"dbname": "shop", "host": "a,b", "port": "1,", "sslmode": "require"},
        ),
    ],
)
def test_a_postgresql_url_reaches_libpq_as_it_takes_them(url: str, said: dict[str, str]) -> None:
    from psycopg.conninfo import conninfo_to_dict

    from taskharbor.drivers.postgres.target import split_options

    ours = {"connect_timeout": "10", "client_encoding": "UTF8"}
    target, _ = split_options(parse_url(f"{url}{'&' if '?' in url else '?'}prefix=x_&max_size=3").rest)
    assert conninfo_to_dict(target) == {**said, **ours}


def test_a_path_without_slashes_is_answered_with_how_to_write_it() -> None:
    with pytest.raises(InvalidURL, match=r"three slashes.*sqlite:///jobs\.db"):
        parse_url("sqlite:jobs.db")


def test_a_space_in_an_option_reaches_the_client_library_as_one() -> None:
    assert parse_url("postgresql://h/d?options=-c%20geqo=off").rest == "postgresql://h/d?options=-c%20geqo%3Doff"


def test_a_payload_cap_leaves_the_other_limits_as_they_were_passed_in() -> None:
    limits = parse_url("memory://?max_payload=10", Limits(crash_allowance=9)).limits
    assert (limits.max_payload_bytes, limits.crash_allowance) == (10, 9)


@pytest.mark.parametrize("cap", ["0", "-1", "many", "1e6", "", str(2**31)])
def test_a_payload_cap_that_is_no_number_of_bytes_is_refused(cap: str) -> None:
    with pytest.raises(InvalidURL, match="max_payload"):
        parse_url(f"memory://?max_payload={cap}")


def test_limits_that_were_passed_in_are_kept() -> None:
    assert parse_url("memory://", Limits(crash_allowance=9)).limits.crash_allowance == 9


def test_three_slashes_are_relative_and_four_absolute() -> None:
    assert opening._local_path(parse_url("sqlite:///jobs.db")) == "jobs.db"
    assert opening._local_path(parse_url("sqlite:////var/jobs.db")) == "/var/jobs.db"
    assert opening._local_path(parse_url("sqlite:///my%20jobs.db")) == "my jobs.db"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "json://jobs", "sqlite://jobs.db"])
def test_a_local_store_without_a_path_is_refused_with_the_right_spelling(url: str) -> None:
    with pytest.raises(InvalidURL, match="three slashes"):
        open_driver(url)


def test_an_unnamed_memory_store_is_private_and_a_named_one_is_shared() -> None:
    from taskharbor import JobNotFound, NewJob

    shared, same, private = open_driver("memory://unit"), open_driver("memory://unit"), open_driver("memory://")
    (job,) = shared.enqueue([NewJob("t")])
    assert same.get(job.id).type == "t"
    with pytest.raises(JobNotFound):
        private.get(job.id)


def test_what_is_opened_is_a_driver() -> None:
    assert isinstance(open_driver("memory://"), Driver)


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [
        ("postgresql://h/d", "psycopg", "postgres"),
        ("mysql://h/d", "pymysql", "mysql"),
        ("mariadb://h/d", "pymysql", "mysql"),
    ],
)
def test_a_missing_library_is_answered_with_the_extra_to_install(
    url: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"taskharbor.drivers.{extra}"
    for name in [name for name in sys.modules if name.partition(".")[0] == library or name.startswith(folder)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'taskharbor\[{extra}\]'"):
        open_driver(url)


def test_other_packages_can_add_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = open_driver("memory://")

    class Entry:
        def load(self) -> object:
            return lambda _url: driver

    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group, name: [Entry()] if (group, name) == ("taskharbor.drivers", "boat") else [],
    )
    assert open_driver("boat://anywhere") is driver


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("sqlite:///jobs.db", "sqlite:///{}/jobs.db"),
        ("SQLite:///./jobs.db?mode=ro&prefix=a_", "sqlite:///{}/jobs.db?mode=ro&prefix=a_"),
        ("json:///a%20b/c%3Fd", "json:///{}/a%20b/c%3Fd"),
        ("json:///größe", "json:///{}/größe"),
        ("sqlite:////var/jobs.db", "sqlite:////var/jobs.db"),
        ("postgresql://app:pw@db/shop", "postgresql://app:pw@db/shop"),
        ("memory://", "memory://"),
        ("sqlite:///", "sqlite:///"),
        ("the old one", "the old one"),
    ],
)
def test_the_url_of_a_file_reads_the_same_from_every_directory(
    url: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(url) == seen.format(tmp_path)
    assert absolute(absolute(url)) == absolute(url)


def test_above_a_link_is_where_the_system_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "below")
    monkeypatch.chdir(tmp_path)
    assert absolute("sqlite:///link/jobs.db") == f"sqlite:///{tmp_path}/link/jobs.db"
    assert absolute("sqlite:///link/../jobs.db") == f"sqlite:///{tmp_path}/far/jobs.db"

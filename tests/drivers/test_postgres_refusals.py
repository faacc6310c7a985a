"""Why PostgreSQL cannot be connected to: what waiting cures is an outage, and what it does not cure is a refusal."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from taskharbor.core.errors import StoreRefused, StoreUnavailable, TaskHarborError
from taskharbor.drivers import open_driver
from taskharbor.drivers.postgres.refusals import not_connected
from taskharbor.testing.servers import PostgresServer

MYSQL_GREETING = b"J\0\0\0\n8.0.36\0" + bytes(60)
AT = 'connection failed: connection to server at "role.db" (10.0.0.1), port 5432 failed:'


def trouble(url: str) -> TaskHarborError:
    with open_driver(url) as driver, pytest.raises(StoreUnavailable) as caught:
        driver.counts()
    return caught.value


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A port that answers the first thing it is told like this."""

    def serve() -> None:
        way, _ = listener.accept()
        with way:
            way.recv(1024)
            way.sendall(answer)
            way.recv(1024)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"postgresql://harbor:hush@127.0.0.1:{listener.getsockname()[1]}/shop"
        thread.join(30)


@pytest.mark.parametrize("options", ["sslmode=require", "sslmode=verify-full&sslrootcert=system"])
def test_a_server_without_the_encryption_that_the_url_wants_is_refused(options: str) -> None:
    with answering(b"N") as url:
        error = trouble(f"{url}?{options}&gssencmode=disable")
    assert type(error) is StoreRefused
    assert "sslmode in the URL" in f"{error}"
    assert "hush" not in f"{error}"


def test_a_certificate_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with answering(b"S") as url:
        error = trouble(f"{url}?sslmode=verify-full&sslrootcert={tmp_path}/none.crt&gssencmode=disable")
    assert type(error) is StoreRefused
    assert "check sslmode, sslrootcert" in f"{error}"


@pytest.mark.parametrize("sslmode", ["prefer", "disable"])
def test_a_port_where_another_protocol_is_spoken_is_refused(sslmode: str) -> None:
    with answering(MYSQL_GREETING) as url:
        error = trouble(f"{url}?sslmode={sslmode}&gssencmode=disable")
    assert type(error) is StoreRefused
    assert "is this its port?" in f"{error}"


def test_options_that_the_login_cannot_satisfy_are_refused(postgres: PostgresServer) -> None:
    url = postgres.create_database()
    for options, named in (
        ("channel_binding=require&sslmode=disable", "channel_binding"),
        ("channel_binding=perhaps", "option"),
        ("options=-c%20no_such_setting%3D1", "option"),
    ):
        error = trouble(f"{url}?{options}")
        assert type(error) is StoreRefused, error
        assert named in f"{error}".partition("(")[0]


def test_a_role_without_connections_is_asked_to_wait_and_one_without_the_right_is_refused(
    postgres: PostgresServer,
) -> None:
    url = postgres.create_database()
    parts = urlsplit(url)
    database = parts.path.strip("/")
    role = f"r{database[-20:]}"
    theirs = parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}").geturl()
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x' CONNECTION LIMIT 0".encode())
        assert type(trouble(theirs)) is StoreUnavailable, "the others may leave"
        admin.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1".encode())
        admin.execute(f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC".encode())
        error = trouble(theirs)
        assert type(error) is StoreRefused
        assert "GRANT CONNECT" in f"{error}"
        admin.execute(f"ALTER ROLE {role} NOLOGIN".encode())
        assert type(trouble(theirs)) is StoreRefused


@pytest.mark.parametrize(
    "text",
    [
        "Connection refused",
        "timeout expired",
        "FATAL:  sorry, too many clients already",
        'FATAL:  too many connections for role "app"',
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "FATAL:  the database system is starting up",
        "FATAL:  canceling authentication due to timeout",
        "FATAL:  server login has been failing, try again later (server_login_retry)",
        "SSL SYSCALL error: EOF detected",
        "session is read-only",
        'could not translate host name "authentication" to address: Temporary failure in name resolution',
    ],
)
def test_what_waiting_cures_is_an_outage(text: str) -> None:
    assert type(not_connected(f"{AT} {text}")) is StoreUnavailable


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("server does not support SSL, but SSL was required", "sslmode"),
        ("SSL error: certificate verify failed", "sslrootcert"),
        ('server certificate for "a" does not match host name "b"', "sslmode"),
        ("SSL error: tlsv13 alert certificate required", "sslcert"),
        ("FATAL:  connection requires a valid client certificate", "sslcert"),
        ('weak sslmode "prefer" may not be used with sslrootcert=system (use "verify-full")', "sslmode"),
        ("channel binding required, but SSL not in use", "channel_binding"),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "a", database "b", no encryption', "pg_hba.conf"),
        ('FATAL:  password authentication failed for user "a"', "password"),
        ('FATAL:  role "a" is not permitted to log in', "login"),
        ('FATAL:  database "b" is not currently accepting connections', "database"),
        ("received invalid response to SSL negotiation: J", "port"),
        ("FATAL:  unsupported startup parameter: options", "option"),
    ],
)
def test_what_waiting_does_not_cure_is_a_refusal(text: str, cure: str) -> None:
    error = not_connected(f"{AT} {text}")
    assert type(error) is StoreRefused
    assert cure in f"{error}".partition("(")[0]

"""Connecting to MySQL: how long it may take, and what is said where something else answers or a login is refused."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.drivers.mysql.stores import connect, run

from taskharbor.core.errors import StoreRefused, StoreUnavailable, TaskHarborError
from taskharbor.drivers import open_driver
from taskharbor.drivers.mysql.connecting import Connected
from taskharbor.drivers.mysql.driver import MysqlDriver
from taskharbor.testing.helpers import add


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[socket.socket]]]:
    """A port that takes every connection and answers like this; its URL, and the connections that it has taken."""
    taken: list[socket.socket] = []
    over = threading.Event()

    def serve() -> None:
        while True:
            way, _ = listener.accept()
            if over.is_set():
                way.close()
                return
            taken.append(way)
            answer(way)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        place = listener.getsockname()
        try:
            yield f"mysql://root:hush@127.0.0.1:{place[1]}/shop?connect_timeout=1", taken
        finally:
            over.set()
            socket.create_connection(place).close()
            thread.join(30)
            for way in taken:
                way.close()


def refused_in_time(url: str, error: type[Exception]) -> str:
    with open_driver(url) as driver:
        began = time.monotonic()
        with pytest.raises(error) as caught:
            add(driver)
        assert time.monotonic() - began < 5
    assert type(caught.value) is error
    assert "hush" not in f"{caught.value}"
    return f"{caught.value}"


def test_one_attempt_to_connect_is_all_that_a_silent_port_gets_and_connect_timeout_bounds_it() -> None:
    with answering(lambda _: None) as (url, taken):
        said = refused_in_time(url, StoreUnavailable)
        assert len(taken) == 1
    assert "within 1 s: is this the port of a MySQL or MariaDB server?" in said


def test_a_port_that_hangs_up_is_tried_once() -> None:
    with answering(lambda way: way.close()) as (url, taken):
        assert "is this the port of a MySQL or MariaDB server?" in refused_in_time(url, StoreUnavailable)
        assert len(taken) == 1


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2p1\r\n", b"\0\0\0\0", b"\1\0\0\0\n"])
def test_a_port_where_another_protocol_is_spoken_is_refused(greeting: bytes) -> None:
    with answering(lambda way: way.sendall(greeting)) as (url, _):
        assert "is this the port of a MySQL or MariaDB server?" in refused_in_time(url, StoreRefused)


def test_statements_have_the_time_of_statements_however_short_that_of_connecting_is(mysql_url: str) -> None:
    with MysqlDriver(f"{mysql_url}?connect_timeout=1&read_timeout=90&write_timeout=80") as driver:
        timeouts = driver._store._attempt(
            lambda connection: [
                run(connection, "SELECT SLEEP(1.2)") and connection._sock.gettimeout(),
                connection._write_timeout,
            ]
        )
    assert timeouts == [90, 80]


def test_a_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = refused_in_time(f"mysql://root@localhost/shop?unix_socket={tmp_path}/none.sock", StoreUnavailable)
    assert "is the socket path right?" in said
    assert "none.sock" in said


def test_connections_share_what_encrypts_them_unless_the_url_says_how(driver: MysqlDriver) -> None:
    """To make it takes longer than to connect."""
    plain = [Connected(defer_connect=True) for _ in range(2)]
    own = [Connected(defer_connect=True, ssl={"verify_mode": "required"}) for _ in range(2)]
    assert plain[0].ctx is plain[1].ctx is driver._store.read(lambda session: session._connection.ctx)
    assert plain[0].ctx.verify_mode is ssl.CERT_NONE
    assert len({id(each.ctx) for each in (*plain, *own)}) == 3
    assert own[0].ctx.verify_mode is ssl.CERT_REQUIRED


def trouble(url: str) -> TaskHarborError:
    with open_driver(url) as driver, pytest.raises(TaskHarborError) as caught:
        add(driver)
    return caught.value


def test_certificates_that_do_not_fit_are_refused_and_no_outage(mysql_url: str) -> None:
    """Whether the server has no TLS, or has it with a certificate that another authority has signed."""
    with as_file(files("pip._vendor.certifi") / "cacert.pem") as authorities:  # not every machine has some
        error = trouble(f"{mysql_url}?ssl_ca={authorities}")
    assert type(error) is StoreRefused, error
    assert "ssl_… files in the URL" in f"{error}"


def test_a_locked_user_is_refused_and_one_with_too_many_connections_is_asked_to_wait(mysql_url: str) -> None:
    parts = urlsplit(mysql_url)
    database = parts.path.strip("/")
    name = f"u{database[-20:]}"
    url = parts._replace(netloc=f"{name}:x@{parts.hostname}:{parts.port}").geturl()
    with closing(connect(mysql_url, autocommit=True)) as admin:
        run(admin, f"CREATE USER {name} IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1")
        try:
            run(admin, f"GRANT ALL ON {database}.* TO {name}")
            with closing(connect(url)):
                assert type(trouble(url)) is StoreUnavailable
            run(admin, f"ALTER USER {name} ACCOUNT LOCK")
            assert type(trouble(url)) is StoreRefused
        finally:
            run(admin, f"DROP USER {name}")

"""What `taskharbor serve` does: settings from words, one process or several, and where they can be found."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver
    from taskharbor.web.settings import Settings

SECRET: Final = "TASKHARBOR_SECRET"  # noqa: S105 - the name of it
SHORTEST_SECRET: Final = 16
_ALONE: Final = ("json",)
"""Stores that a server has to itself, in one process."""


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.store import opened, refuse_memory, store_address
    from taskharbor.drivers.opening import parse_url
    from taskharbor.worker.program_log import ProgramLog

    require_web()
    settings = settings_of(arguments, store_address(arguments))
    refuse_memory(settings.url)
    if settings.processes > 1 and parse_url(settings.url).scheme in _ALONE:
        raise InvalidInput(f"{parse_url(settings.url).scheme}:// is for one process: leave out --processes")
    ProgramLog(arguments.log_level, arguments.log_format).install()
    with opened(arguments, create=True) as driver:
        settings = replace(settings, open=not driver.tokens(), feed_start=driver.latest(limit=1).cursor)
        refuse_strangers(settings)
        if settings.processes == 1:
            return _run_here(arguments, settings, driver)
    return _run_many(arguments, settings)


def require_web() -> None:
    from importlib.util import find_spec

    missing = [
        name
        for name in ("fastapi", "uvicorn", "httptools", "jinja2", "itsdangerous", "prometheus_client")
        if not find_spec(name)
    ]
    if missing:
        raise MissingExtra(f"serve needs an extra ({missing[0]} is missing): pip install 'taskharbor[web]'")


def settings_of(arguments: argparse.Namespace, url: str) -> Settings:
    from taskharbor.web.settings import Settings

    given: dict[str, Any] = {
        "host": arguments.host,
        "port": arguments.port,
        "processes": arguments.processes,
        "rate": arguments.rate,
        "burst": arguments.burst,
        "depth": arguments.depth,
        "max_body": arguments.max_body,
        "max_bulk": arguments.max_bulk,
        "session_hours": None if arguments.session is None else arguments.session.total_seconds() / 3600,
        "secure_cookies": arguments.secure_cookies,
        "lake": arguments.lake,
        "secret": _secret(),
    }
    return Settings(url, **{name: value for name, value in given.items() if value is not None})


def _secret() -> str | None:
    secret = os.environ.get(SECRET, "").strip()
    if secret and len(secret) < SHORTEST_SECRET:
        raise InvalidInput(f"{SECRET} signs the sessions: make it at least {SHORTEST_SECRET} characters, at random")
    return secret or None


def refuse_strangers(settings: Settings) -> None:
    from taskharbor.web.settings import is_loopback

    if settings.open and not is_loopback(settings.host):
        raise InvalidInput(
            f"there is no token yet, so everybody who reaches {settings.host} could do everything: create one first, "
            "`taskharbor token create --tenant '*' --role admin`, or leave out --host"
        )


def _run_here(arguments: argparse.Namespace, settings: Settings, driver: Driver) -> int:
    from taskharbor.cli.serve_history import history_of
    from taskharbor.web import create_app
    from taskharbor.web.serving import Server, listen, run

    listening = listen(settings)
    bound = replace(settings, port=listening.getsockname()[1])
    server = Server(create_app(bound, driver, history_of(bound)), on_start=lambda: announce(arguments, bound))
    return run(server, listening)


def _run_many(arguments: argparse.Namespace, settings: Settings) -> int:
    """The parent keeps the address and looks after the processes; each of them listens there itself."""
    from taskharbor.web.serving import listen
    from taskharbor.web.settings import ENVIRONMENT
    from taskharbor.worker.supervisor import Supervisor

    if not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidInput("this system cannot share a port among processes: leave out --processes")
    listen(settings).close()  # with nobody to share it, the address must be free
    with listen(settings, share=True, only_bind=True) as kept:
        bound = replace(settings, port=kept.getsockname()[1])
        os.environ[ENVIRONMENT] = bound.to_text()
        words = ["--log-level", arguments.log_level, "--log-format", arguments.log_format]
        threading.Thread(target=_announce_later, args=(arguments, bound), daemon=True).start()
        command = [sys.executable, "-m", "taskharbor.cli.serve_process", *words]
        try:
            return Supervisor(command, settings.processes, "server").run()
        finally:
            del os.environ[ENVIRONMENT]


def _announce_later(arguments: argparse.Namespace, settings: Settings) -> None:
    """When the first process answers."""
    while True:
        try:
            socket.create_connection((settings.host, settings.port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            announce(arguments, settings)
            return


def announce(arguments: argparse.Namespace, settings: Settings) -> None:
    """Where it listens and who may come, on standard error like the log; with --json, one document."""
    from taskharbor.cli.output import print_json
    from taskharbor.drivers.opening import redacted
    from taskharbor.web.serving import addresses

    found = addresses(settings, settings.port)
    if arguments.json:
        print_json({"addresses": found, "open": settings.open, "processes": settings.processes})
        sys.stdout.flush()
    lines = [
        f"serving {redacted(settings.url)} on {' and '.join(found)}",
        f"the dashboard is at {found[0]}/, the API at {found[0]}/api/v1/, its description at {found[0]}/openapi.json",
    ]
    if settings.open:
        lines.append(
            "there is no token yet: everybody on this machine may do everything, and nobody else gets in. Create one: "
            "taskharbor token create --tenant '*' --role admin"
        )
    for line in lines:
        if arguments.log_format == "json":
            logging.getLogger("taskharbor.cli").info(line)
        else:
            print(f"taskharbor: {line}", file=sys.stderr, flush=True)

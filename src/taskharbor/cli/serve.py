"""`taskharbor serve`: the REST API and the dashboard."""

from __future__ import annotations

import argparse
from typing import Final

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.values import positive, positive_duration, rate

_LEVELS: Final = ("debug", "info", "warning", "error")
_DESCRIPTION: Final = """\
Serve the REST API and the dashboard, until Ctrl-C or SIGTERM.

Programs and people come with tokens: `taskharbor token create`. As long as there is no token at all, everybody on
this machine may do everything, and the server listens on the loopback address only. It speaks plain HTTP: put a proxy
that speaks HTTPS in front of it before it leaves the machine.

examples:
  taskharbor serve
  taskharbor --url postgresql://db/jobs serve --port 9000 --processes 2
  taskharbor serve --host 0.0.0.0 --secure-cookies --rate 500/s --depth 1000000
"""


def port(text: str) -> int:
    if not text.strip().isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 0 (any that is free) to 65535")
    return int(text)


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "serve", help="the REST API and the dashboard", description=_DESCRIPTION)
    parser.add_argument("--host", metavar="NAME", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, metavar="N", default=8080, help="at which port (default: 8080)")
    parser.add_argument("--processes", type=positive, metavar="N", default=1, help="so many processes (default: 1)")
    parser.add_argument("--rate", type=rate, metavar="N/s", help="jobs that a tenant may enqueue (default: any number)")
    parser.add_argument("--burst", type=positive, metavar="N", help="how many of them at once (default: a second's)")
    parser.add_argument(
        "--depth", type=positive, metavar="N", help="jobs of a tenant that may wait (default: any number)"
    )
    parser.add_argument("--max-body", type=positive, metavar="BYTES", help="of one job in a request (default: 1114112)")
    parser.add_argument("--max-bulk", type=positive, metavar="BYTES", help="of one bulk request (default: 268435456)")
    parser.add_argument(
        "--session", type=positive_duration, metavar="TIME", help="how long a login lasts (default: 12h)"
    )
    parser.add_argument("--secure-cookies", action="store_true", help="a proxy in front of it speaks HTTPS")
    parser.add_argument("--lake", metavar="PATH", help="the tables of `pipeline run`, for the dashboard's history")
    parser.add_argument("--log-level", choices=_LEVELS, default="info", help="(default: info, which has every request)")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="(default: text)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli import serve_run

    return serve_run.run(arguments)

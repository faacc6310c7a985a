"""Verbs whose rooms are still being built: they say so, and nothing that can be installed would change it."""

from __future__ import annotations

import argparse
import sys
from typing import Final, NamedTuple

from taskharbor.cli.options import Verbs, add_verb
from taskharbor.cli.values import positive


class _Later(NamedTuple):
    name: str
    help: str
    example: str
    actions: tuple[str, ...] = ()


_VERBS: Final = (
    _Later("serve", "the REST API and the dashboard", "serve --port 8080"),
    _Later("token", "who may use the REST API", "token create", ("create", "list", "revoke")),
)


def add_to(verbs: Verbs) -> None:
    for verb in _VERBS:
        description = (
            f"{verb.help[0].upper()}{verb.help[1:]}. Not in this release yet.\n\n"
            f"examples:\n  taskharbor {verb.example}\n"
        )
        parser = add_verb(verbs, verb.name, help=f"{verb.help} (not here yet)", description=description)
        if verb.actions:
            parser.add_argument("action", choices=verb.actions)
            parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        else:
            parser.add_argument("--host", metavar="NAME", help="where to listen (default: 127.0.0.1)")
            parser.add_argument("--port", type=positive, metavar="N", help="at which port (default: 8080)")
        parser.set_defaults(run=run, verb=verb)


def run(arguments: argparse.Namespace) -> int:
    verb: _Later = arguments.verb
    print(f"taskharbor: {verb.name} is not in this release yet: there is no extra that brings it", file=sys.stderr)
    return 1

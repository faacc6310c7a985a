"""`taskharbor token`: who may use the REST API and the dashboard."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from taskharbor.cli.options import Verbs, add_group, add_verb
from taskharbor.cli.values import positive_duration

if TYPE_CHECKING:
    from datetime import datetime

    from taskharbor.core.tokens import Token

ROLES: Final = ("viewer", "producer", "worker", "operator", "admin")
_DESCRIPTION: Final = """\
Make, list and revoke the tokens of the REST API and the dashboard.

examples:
  taskharbor token create --tenant acme --role producer
  taskharbor token list
  taskharbor token revoke 5f2c81d09e4a
"""
_CREATE: Final = """\
Make a token for a tenant, or with --tenant '*' for all of them, and print it. It is shown this once: the store keeps
a hash of it.

viewer     sees jobs, queues and numbers
producer   also enqueues jobs, for one tenant, and cancels them
worker     sees, reserves and settles jobs
operator   sees, enqueues, retries, redrives, cancels, pauses and resumes
admin      may do everything

examples:
  taskharbor token create --tenant acme --role producer
  taskharbor token create --tenant '*' --role admin --name ada --expires 90d
"""
_LIST: Final = """\
List the tokens, without their secrets, which nobody has any more.

examples:
  taskharbor token list
  taskharbor token list --json
"""
_REVOKE: Final = """\
Revoke tokens: from now on they open nothing, in servers that run too.

examples:
  taskharbor token revoke 5f2c81d09e4a
"""


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "token", help="who may use the REST API and the dashboard", description=_DESCRIPTION)
    parser = add_verb(group, "create", help="make a token, and print it once", description=_CREATE)
    parser.add_argument("--tenant", metavar="NAME", required=True, help="whose jobs it is for; '*' for all tenants")
    parser.add_argument("--role", choices=ROLES, required=True, help="what it may do")
    parser.add_argument("--name", metavar="TEXT", help="to tell it from others (default: role and tenant)")
    parser.add_argument(
        "--expires", type=positive_duration, metavar="TIME", help="good for so long (default: for ever)"
    )
    parser.set_defaults(run=run_create)
    parser = add_verb(group, "list", help="list the tokens", description=_LIST)
    parser.set_defaults(run=run_list)
    parser = add_verb(group, "revoke", help="revoke tokens", description=_REVOKE)
    parser.add_argument("ids", metavar="ID", nargs="+")
    parser.set_defaults(run=run_revoke)


def run_create(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import in_one_line, print_json
    from taskharbor.cli.store import opened
    from taskharbor.core.tokens import new_token

    name = arguments.name or f"{arguments.role} of {arguments.tenant}"
    with opened(arguments, create=True) as driver:
        now = driver.now()
        expires_at = None if arguments.expires is None else now + arguments.expires
        token, secret = new_token(name, arguments.tenant, arguments.role, now, expires_at)
        driver.add_token(token)
    if arguments.json:
        print_json({"token": secret, **_record(token, now)})
        return 0
    # The token alone on standard output, so that a script can take it.
    print(secret)
    whom = "all tenants" if token.tenant_id == "*" else f"the tenant {token.tenant_id}"
    print(
        in_one_line(f"taskharbor: token {token.id} ({token.role}, {whom}): keep it, it is not shown again"),
        file=sys.stderr,
    )
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.form import ago
    from taskharbor.cli.output import Table, print_json, show
    from taskharbor.cli.store import opened

    with opened(arguments) as driver:
        now = driver.now()
        tokens = driver.tokens()
    if arguments.json:
        print_json({"tokens": [_record(token, now) for token in tokens]})
        return 0
    rows = [
        (
            token.id,
            token.name,
            token.tenant_id,
            token.role.value,
            _state(token, now),
            ago(token.created_at, now),
            "never" if token.expires_at is None else ago(token.expires_at, now),
        )
        for token in tokens
    ]
    empty = "no tokens: `taskharbor serve` lets everybody on this machine in, and nobody else"
    show(Table(("id", "name", "tenant", "role", "state", "created", "expires"), rows, empty=empty))
    return 0


def run_revoke(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import in_one_line, print_json
    from taskharbor.cli.store import opened

    with opened(arguments, writes=True) as driver:
        revoked = {id: driver.revoke_token(id) for id in dict.fromkeys(arguments.ids)}
        known = {token.id for token in driver.get_tokens(list(revoked))}
    if arguments.json:
        print_json({"tokens": [{"id": id, "revoked": id in known} for id in revoked]})
    for id in map(in_one_line, revoked):
        if id not in known:
            print(f"taskharbor: {id} is no token", file=sys.stderr)
        elif not arguments.json:
            print(f"{id} is revoked")
    return 0 if known >= revoked.keys() else 1


def _state(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "good"


def _record(token: Token, now: datetime) -> dict[str, Any]:
    from taskharbor.core.forms import iso

    return {
        "id": token.id,
        "name": token.name,
        "tenant": token.tenant_id,
        "role": token.role.value,
        "state": _state(token, now),
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "revoked_at": iso(token.revoked_at),
    }

"""`taskharbor keys`: keys for the encryption of payloads and results, and what other verbs do with them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from taskharbor.cli.options import Verbs, add_group, add_verb, typed_only
from taskharbor.core.errors import InvalidInput

if TYPE_CHECKING:
    from taskharbor.app import Harbor
    from taskharbor.app.encryption import Keyring
    from taskharbor.core.model import Job

_DESCRIPTION: Final = """\
Keys for the encryption of payloads and results.

examples:
  taskharbor keys generate 2026-11 >> keys.txt
  taskharbor --encryption-keys keys.txt keys list
"""
_GENERATE: Final = """\
Print a new key, as a line for the file of keys. The last line of the file is the active key, unless another is marked
so; the others open what was written before. Without an id, it is called after today.

examples:
  taskharbor keys generate 2026-11 >> keys.txt
"""
_LIST: Final = """\
List the ids of the keys in use, of the application (-A) or of --encryption-keys. The keys themselves are never shown.

examples:
  taskharbor --encryption-keys keys.txt keys list
  taskharbor -A shop.jobs:harbor keys list --json
"""


def add_to(verbs: Verbs) -> None:
    group = add_group(verbs, "keys", help="keys for encrypted payloads and results", description=_DESCRIPTION)
    parser = add_verb(group, "generate", help="print a new key", description=_GENERATE)
    parser.add_argument("id", metavar="ID", nargs="?", help="what to call it (default: today, such as 2026-11-30)")
    parser.set_defaults(run=run_generate)
    parser = add_verb(group, "list", help="list the ids of the keys in use", description=_LIST)
    parser.set_defaults(run=run_list)


def run_generate(arguments: argparse.Namespace) -> int:
    from taskharbor.app.encryption import Keyring
    from taskharbor.cli.output import print_json
    from taskharbor.core.clock import utc_now
    from taskharbor.core.envelope import check_key_id

    key_id = check_key_id(arguments.id or utc_now().date().isoformat())
    secret = Keyring.generate()
    if arguments.json:
        print_json({"id": key_id, "key": secret})
    else:
        print(f"{key_id}:{secret}")
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import Table, print_json, show

    ring = ring_of(arguments, _application(arguments))
    if ring is None:
        raise InvalidInput(f"there are no keys: {_how_to_name_keys(arguments)}")
    if arguments.json:
        print_json({"keys": [{"id": key_id, "active": key_id == ring.active} for key_id in ring.ids]})
        return 0
    show(Table(("key", "used for"), [(key_id, _use(key_id, ring)) for key_id in ring.ids]))
    return 0


def _use(key_id: str, ring: Keyring) -> str:
    uses = ["everything new"] * (key_id == ring.active) + ["what was written with it"]
    return ", ".join(uses + ["fingerprints"] * (key_id == ring.ids[0]))


def add_decrypt(parser: argparse.ArgumentParser) -> None:
    typed_only(
        parser.add_argument(
            "--decrypt",
            action="store_true",
            help="show in plain what is encrypted; needs the keys, of -A or --encryption-keys",
        )
    )


def ring_of(arguments: argparse.Namespace, harbor: Harbor | None) -> Keyring | None:
    """The keys of the application where there is one, else of the file that was named; None without either."""
    if harbor is not None:
        return harbor.encryption
    if not arguments.encryption_keys:
        return None
    from taskharbor.app.encryption import Keyring

    return Keyring.read(arguments.encryption_keys)


def decrypted(job: Job, arguments: argparse.Namespace) -> Job:
    """The job in plain. One that is not encrypted is as it was."""
    from taskharbor.core.envelope import is_sealed

    if not is_sealed(job.payload) and not is_sealed(job.result):
        return job
    ring = ring_of(arguments, _application(arguments))
    if ring is None:
        raise InvalidInput(f"--decrypt needs the keys: {_how_to_name_keys(arguments)}")
    payload = ring.open_payload(job) if is_sealed(job.payload) else job.payload
    return job._replace(payload=payload, result=ring.open_result(job) if is_sealed(job.result) else job.result)


def _how_to_name_keys(arguments: argparse.Namespace) -> str:
    if arguments.app:
        return f"{arguments.app} has none, Harbor(…, encryption=…). Name their file with --encryption-keys"
    return "name their file with --encryption-keys, or the application with -A"


def _application(arguments: argparse.Namespace) -> Harbor | None:
    """The application, unless the keys were typed in its place."""
    if not arguments.app or "encryption_keys" in arguments.given:
        return None
    from taskharbor.cli.app import load_app

    return load_app(arguments)

"""The options that every verb shares. They may stand before the verb or behind it."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

DEFAULT_URL: Final = "sqlite:///taskharbor.db"
Verbs = Any
"""What `add_subparsers` returns; argparse has no public name for it."""


def shared_options(*, defaults: bool) -> argparse.ArgumentParser:
    """A parent parser. Behind the verb it has no defaults, or they would undo what was given before the verb."""
    suppressed: Any = argparse.SUPPRESS
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument(
        "--url",
        default=None if defaults else suppressed,
        help=f"the store (TASKHARBOR_URL; default {DEFAULT_URL})",
    )
    options.add_argument(
        "--json",
        action="store_true",
        default=False if defaults else suppressed,
        help="print JSON, for programs",
    )
    return options


def add_verb(verbs: Verbs, name: str, *, help: str, description: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=help,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared_options(defaults=False)],
        allow_abbrev=False,
    )
    return parser


def given_url(arguments: argparse.Namespace) -> str | None:
    """The store that was asked for in words or in the environment, if any was."""
    url: str | None = arguments.url or os.environ.get("TASKHARBOR_URL")
    return url or None


def store_url(arguments: argparse.Namespace) -> str:
    return given_url(arguments) or DEFAULT_URL

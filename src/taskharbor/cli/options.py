"""The options that every verb shares. They may stand before the verb or behind it."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from taskharbor.core.errors import InvalidURL

DEFAULT_URL: Final = "sqlite:///taskharbor.db"
URL_HELP: Final = f"the store (default: the environment's TASKHARBOR_URL, else {DEFAULT_URL})"
Verbs = Any
"""What `add_subparsers` returns; argparse has no public name for it."""


def shared_options(*, defaults: bool, url_help: str = URL_HELP) -> argparse.ArgumentParser:
    """A parent parser. Behind the verb it has no defaults, or they would undo what was given before the verb."""
    suppressed: Any = argparse.SUPPRESS
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--url", default=None if defaults else suppressed, help=url_help)
    options.add_argument(
        "--json",
        action="store_true",
        default=False if defaults else suppressed,
        help="print JSON, for programs; errors stay one plain line on standard error",
    )
    return options


def add_verb(
    verbs: Verbs, name: str, *, help: str, description: str, url_help: str = URL_HELP
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=help,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared_options(defaults=False, url_help=url_help)],
        allow_abbrev=False,
    )
    return parser


def given_url(arguments: argparse.Namespace) -> str | None:
    """The store that was asked for in words, if any was."""
    url: str | None = arguments.url
    if url is not None and not url.strip():
        # Most often a variable that is not set: nobody means the default by it.
        raise InvalidURL("--url is empty: give it a store, such as sqlite:///jobs.db, or leave it out")
    return url


def store_url(arguments: argparse.Namespace) -> str:
    """The store that was asked for, in words or in the environment, or the default."""
    return given_url(arguments) or os.environ.get("TASKHARBOR_URL") or DEFAULT_URL

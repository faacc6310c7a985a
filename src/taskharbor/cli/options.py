"""The options that every verb shares, and where an option that nobody typed gets its value from.

A flag wins over the environment's `TASKHARBOR_<FLAG>`, that over `taskharbor.toml`, and that over the default. To tell
what was typed from what was not, no option has a default while the words are read; `resolve` fills in the rest.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from taskharbor.core.errors import InvalidInput, InvalidURL

DEFAULT_URL: Final = "sqlite:///taskharbor.db"
URL_HELP: Final = f"the store (default: the environment's TASKHARBOR_URL, else {DEFAULT_URL})"
Verbs = Any
"""What `add_subparsers` returns; argparse has no public name for it."""

_OURS: Final = "TASKHARBOR_"
_OTHER_NAMES: Final = (
    *(
        "TASKHARBOR_LAKE",
        "TASKHARBOR_REQUIRE_ALL",
        "TASKHARBOR_SUPERVISED",
        "TASKHARBOR_PARENT_EAR",
        "TASKHARBOR_DEMO_ORDERS",
    ),
    *("TASKHARBOR_SECRET", "TASKHARBOR_SERVE", "TASKHARBOR_SERVER", "TASKHARBOR_TOKEN"),
    *("TASKHARBOR_TEST_POSTGRES", "TASKHARBOR_TEST_MYSQL", "TASKHARBOR_TEST_SEED", "TASKHARBOR_JDBC_JAR"),
)
"""Names in the environment that are no flag's."""
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("0", "false", "no", "off")


def shared_options(*, url_help: str = URL_HELP) -> argparse.ArgumentParser:
    """A parent parser: the options that may stand before the verb or behind it."""
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--url", help=url_help)
    options.add_argument(
        "-A", "--app", metavar="MODULE:HARBOR", help="the application: where its Harbor is, such as shop.jobs:harbor"
    )
    options.add_argument(
        "--json", action="store_true", help="print JSON, for programs; errors stay one plain line on standard error"
    )
    options.add_argument(
        "--encryption-keys",
        metavar="FILE",
        help="the keys of encrypted payloads and results: lines of id:base64, as `keys generate` prints them",
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
        parents=[shared_options(url_help=url_help)],
        allow_abbrev=False,
    )
    parser.set_defaults(leaf=parser)
    return parser


def add_named_verb(
    verbs: Verbs, name: str, *, help: str, description: str, run: Callable[[argparse.Namespace], int]
) -> None:
    """A verb that does one thing to each of the names behind it."""
    parser = add_verb(verbs, name, help=help, description=description)
    parser.add_argument("names", metavar="NAME", nargs="+")
    parser.set_defaults(run=run)


def add_group(verbs: Verbs, name: str, *, help: str, description: str) -> Verbs:
    """A verb that is followed by another, such as `jobs list`."""
    parser = add_verb(verbs, name, help=help, description=description)
    return parser.add_subparsers(title="verbs", metavar="VERB")


def options_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The flags of one parser, without --help and --version."""
    return [
        action
        for action in parser._actions
        if action.option_strings and not isinstance(action, argparse._HelpAction | argparse._VersionAction)
    ]


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def every_parser(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Each parser of the tree with the verbs that lead to it."""
    yield path, parser
    for name, child in subparsers_of(parser).items():
        yield from every_parser(child, (*path, name))


def flag_of(action: argparse.Action) -> str:
    """The long name of a flag."""
    return next(name for name in action.option_strings if name.startswith("--"))


def environment_name(action: argparse.Action) -> str:
    return _OURS + flag_of(action)[2:].replace("-", "_").upper()


def typed_only(action: argparse.Action) -> None:
    """Neither the environment nor a file may say this for anybody: it is for the one time that it is typed."""
    action.typed_only = True  # type: ignore[attr-defined]


def is_typed_only(action: argparse.Action) -> bool:
    return getattr(action, "typed_only", False)


def hold_back_defaults(parser: argparse.ArgumentParser) -> None:
    """Take the default off every flag, so that after parsing only what was typed is there."""
    for _, each in every_parser(parser):
        for action in options_of(each):
            if action.default is not argparse.SUPPRESS:
                action.fallback = action.default  # type: ignore[attr-defined]
                action.default = argparse.SUPPRESS


def resolve(arguments: argparse.Namespace, root: argparse.ArgumentParser) -> argparse.Namespace:
    """Fill in what was not typed. `arguments.given` keeps the names of what was."""
    from taskharbor.cli.config import find_config

    values = vars(arguments)
    arguments.given = frozenset(values)
    arguments.app_directory = None
    config = find_config(root)
    arguments.lake_in_file = config.values.get("lake")
    _doubt_environment(root)
    for action in options_of(arguments.leaf):
        if action.dest in arguments.given:
            continue
        name = environment_name(action)
        text = os.environ.get(name, "").strip()
        if is_typed_only(action) and text:
            print(f"taskharbor: {name} in the environment means nothing: type {flag_of(action)}", file=sys.stderr)
        if action.dest in values:  # two flags may be ways to say one thing
            continue
        if is_typed_only(action):
            values[action.dest] = getattr(action, "fallback", None)
        elif text:
            values[action.dest] = convert(action, text, f"the environment's {name}")
        elif action.dest in config.values:
            values[action.dest] = convert(action, config.values[action.dest], f"{flag_of(action)[2:]} in {config.path}")
            if action.dest == "app":
                arguments.app_directory = config.directory
        else:
            values[action.dest] = getattr(action, "fallback", None)
    return arguments


def _doubt_environment(root: argparse.ArgumentParser) -> None:
    """Say so where a variable looks like one of ours, misspelled. Most that begin like ours are somebody's own."""
    ours = [name for name in os.environ if name.startswith(_OURS)]
    unknown = sorted(set(ours) - set(_OTHER_NAMES))
    if not unknown:
        return
    known = {environment_name(action) for _, parser in every_parser(root) for action in options_of(parser)}
    for name in unknown:
        if name not in known and (near := nearest(name.removeprefix(_OURS), _without_start({*known, *_OTHER_NAMES}))):
            print(f"taskharbor: {name} in the environment means nothing: did you mean {_OURS}{near}?", file=sys.stderr)


def _without_start(names: Iterable[str]) -> list[str]:
    return [name.removeprefix(_OURS) for name in names]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """What was meant, if something known is close enough to it."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.75)
    return near[0] if near else None


def convert(action: argparse.Action, value: Any, source: str) -> Any:
    """The value of a flag from a text, or from what TOML makes of it."""
    if action.nargs == 0:
        if isinstance(value, str):
            value = True if value.lower() in _YES else False if value.lower() in _NO else value
        if not isinstance(value, bool):
            raise InvalidInput(f"{source} must be true or false, got {value!r}")
        return value
    if isinstance(action, argparse._AppendAction):
        return [_convert_one(action, part, source) for part in _parts(value)]
    return _convert_one(action, value, source)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [f"{key}={inner}" for key, inner in value.items()]
    return value if isinstance(value, list) else str(value).split(",")


def _convert_one(action: argparse.Action, value: Any, source: str) -> Any:
    if isinstance(value, dict):  # queues = { default = 10, mail = 2 }
        value = ",".join(f"{key}:{inner}" for key, inner in value.items())
    elif isinstance(value, list):
        value = ",".join(str(inner) for inner in value)
    text = str(value)
    try:
        converted = action.type(text) if callable(action.type) else text
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        raise InvalidInput(f"{source}: {error}") from None
    if action.choices is not None and converted not in action.choices:
        raise InvalidInput(f"{source} must be one of {', '.join(map(str, action.choices))}, got {text!r}")
    return converted


def given_url(arguments: argparse.Namespace) -> str | None:
    """The store that was asked for in words, if any was."""
    if "url" not in arguments.given:
        return None
    url: str = arguments.url
    if not url.strip():
        # Most often a variable that is not set: nobody means the default by it.
        raise InvalidURL("--url is empty: give it a store, such as sqlite:///jobs.db, or leave it out")
    return url


def store_url(arguments: argparse.Namespace) -> str:
    """The store that was asked for, in words, in the environment or in the file, or the default."""
    return given_url(arguments) or arguments.url or DEFAULT_URL

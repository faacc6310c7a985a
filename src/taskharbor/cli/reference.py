"""The reference part of docs/cli.md, written from the parsers, so that no verb or flag can be missing there.

`python -m taskharbor.cli.reference docs/cli.md` renews it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from taskharbor.cli.options import environment_name, every_parser, is_typed_only, options_of, subparsers_of

MARK: Final = "<!-- From here on written by `python -m taskharbor.cli.reference docs/cli.md` -->\n"
SHARED: Final = ("url", "app", "json", "encryption_keys")


def reference(root: argparse.ArgumentParser) -> str:
    """Every verb with its words, its flags and their names in the environment."""
    parts = ["## Flags of every verb\n", _flags(root, ())]
    parts.append("They may stand before the verb or behind it.\n")
    for path, parser in every_parser(root):
        if path:
            parts.append(_verb(path, parser))
    return "\n".join(parts)


def _verb(path: tuple[str, ...], parser: argparse.ArgumentParser) -> str:
    text, _, examples = (parser.description or "").partition("examples:\n")
    level = "##" if len(path) == 1 else "###"
    parts = [f"{level} taskharbor {' '.join(path)}\n", f"{text.strip()}\n"]
    if subparsers_of(parser):
        return "\n".join([*parts, _verbs(path, parser)])
    words = [action for action in parser._actions if not action.option_strings and action.help != argparse.SUPPRESS]
    usage = " ".join(["taskharbor", *path, *(_word(action) for action in words), "[flags]"])
    parts.append(f"```sh\n{usage}\n\n{_dedented(examples)}\n```\n")
    flags = _flags(parser, SHARED)
    return "\n".join([*parts, flags] if flags else parts)


def _verbs(path: tuple[str, ...], parser: argparse.ArgumentParser) -> str:
    children = subparsers_of(parser)
    named = ", ".join(f"[{name}](#taskharbor-{'-'.join((*path, name))})" for name in children)
    return f"Verbs: {named}.\n"


def _word(action: argparse.Action) -> str:
    name = action.metavar if isinstance(action.metavar, str) else "|".join(map(str, action.choices or (action.dest,)))
    return {"?": f"[{name}]", "*": f"[{name}…]", "+": f"{name}…"}.get(str(action.nargs), name)


def _flags(parser: argparse.ArgumentParser, without: Sequence[str]) -> str:
    rows = [
        f"| `{_named(action)}` | {_environment(action)} | {(action.help or '').replace('|', chr(92) + '|')} |"
        for action in options_of(parser)
        if action.dest not in without
    ]
    head = "| Flag | Environment | |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n" if rows else ""


def _environment(action: argparse.Action) -> str:
    return "must be typed" if is_typed_only(action) else f"`{environment_name(action)}`"


def _named(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    value = action.metavar or (chr(92) + "|").join(map(str, action.choices or ())) or action.dest.upper()
    return f"{names} {value}"


def _dedented(text: str) -> str:
    return "\n".join(line.removeprefix("  ") for line in text.rstrip().splitlines())


def main(path: str) -> None:
    from taskharbor.cli.command import build_parser

    document = Path(path)
    prose = document.read_text("utf-8").partition(MARK)[0]
    document.write_text(f"{prose}{MARK}\n{reference(build_parser())}", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

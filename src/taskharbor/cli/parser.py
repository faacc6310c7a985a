"""Wrong usage in one line, with what was probably meant. argparse would print all of the usage above it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from taskharbor.core.errors import InvalidInput

_NEAR: Final = 0.6
_OTHER_WORDS: Final = {
    **dict.fromkeys(("dead", "failed", "error", "errored", "dead-letter"), "dlq"),
    **dict.fromkeys(("pending", "queued", "enqueued"), "ready"),
    **dict.fromkeys(("succeeded", "success", "completed", "finished"), "done"),
}
"""What other queues, and people, call some of ours: the spelling alone would lead elsewhere."""
_BELOW_ZERO: Final = re.compile(r"-\.?\d")


_RAW: Final = (
    (re.compile(r": expected (?:one|at least one) argument$"), " needs a value"),
    (re.compile(r": ignored explicit argument (.*)$"), r" takes no value, got \1"),
    (re.compile(r"^(\S+): not allowed with argument (\S+)$"), r"\1 and \2 exclude each other"),
)
"""What argparse says, and how it is said here."""


class WrongUsage(InvalidInput):
    """The words of the command make no sense."""


class Parser(argparse.ArgumentParser):
    """Every verb gets one: argparse makes the parsers of verbs of the class of their parent."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # No flag begins with a digit: -5/s and -5m are values as -5 is, and whoever reads them says what is wrong.
        self._negative_number_matcher = _BELOW_ZERO

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        needed = message.removeprefix("the following arguments are required: ")
        if needed != message:
            verb = self.prog.partition(" ")[2] or self.prog
            message = f"{verb} needs {needed}"
        for raw, plain in _RAW:
            message = raw.sub(plain, message)
        raise WrongUsage(f"{message}: see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        is_verb = isinstance(action, argparse._SubParsersAction)
        known = [str(choice) for choice in action.choices]
        there = f"there are {', '.join(known)}"
        cure = _meant(str(value), known) or there
        place = " ".join(["taskharbor", *self.prog.split()[1:]])
        if is_verb:
            raise WrongUsage(f"there is no `{place} {value}`: {cure}")
        if not action.option_strings:
            raise WrongUsage(f"{value!r} is not a {action.dest} that is known here: {there}")
        name = next((flag for flag in action.option_strings if flag.startswith("--")), action.dest.upper())
        raise WrongUsage(f"{name} has no {value!r}: {cure}")


def read(root: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """The words, as far as they go. Without a verb there is no `run` in what comes back."""
    try:
        arguments, unread = root.parse_known_args(list(words))
    except WrongUsage:
        _refuse_unknown(words, _flags(root))  # what follows a misspelled flag is taken for something else
        raise
    if not unread:
        return arguments
    leaf: argparse.ArgumentParser = getattr(arguments, "leaf", root)
    _refuse_unknown(unread, leaf._option_string_actions, leaf.prog)
    raise WrongUsage(f"{unread[0]!r} is one word too many: see `{leaf.prog} --help`")


def _refuse_unknown(words: Sequence[str], known: Iterable[str], prog: str = "taskharbor") -> None:
    for word in words:
        flag = word.partition("=")[0]
        if flag == "--":
            return
        if flag.startswith("-") and len(flag) > 1 and " " not in flag and flag not in set(known) and not _number(flag):
            cure = _meant(flag, [each for each in known if each.startswith("--")]) or f"see `{prog} --help`"
            of = prog.partition(" ")[2]
            raise WrongUsage(f"{of} has no flag {flag}: {cure}" if of else f"there is no flag {flag}: {cure}")


def _flags(root: argparse.ArgumentParser) -> set[str]:
    from taskharbor.cli.options import every_parser

    return {flag for _, parser in every_parser(root) for flag in parser._option_string_actions}


def _number(word: str) -> bool:
    return _BELOW_ZERO.match(word) is not None


def _meant(word: str, known: Sequence[str]) -> str | None:
    from difflib import get_close_matches

    other = _OTHER_WORDS.get(word.lower())
    near = [other] if other in known else get_close_matches(word, known, n=1, cutoff=_NEAR)
    return f"did you mean {near[0]}?" if near else None

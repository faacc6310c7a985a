"""What is promised of queues and types: how soon a job starts, and how seldom an attempt fails.

`slo.toml`, given with --slo or lying in the lake's `_taskharbor` directory:

    [default]
    wait_s = 60            # an attempt starts within a minute of being due …
    wait_target = 0.99     # … in 99 of 100 cases
    success_target = 0.99

    [[objective]]
    queue = "mail"         # a queue, a type, or both; the first that fits wins
    wait_s = 5
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from taskharbor.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Objective:
    queue: str | None = None
    type: str | None = None
    wait_s: float = 60.0
    wait_target: float = 0.99
    success_target: float = 0.99


DEFAULT: Final = (Objective(),)
LEAST_ATTEMPTS: Final = 20
LEAST_BAD: Final = 5


def is_enough(good: int, total: int, target: float) -> bool:
    """Whether so many attempts say anything about a promise.

    That takes some twenty, and as many as the promise allows one bad one among; else a single one decides. Fewer are
    enough where five have been bad: that is no chance.
    """
    return total - good >= LEAST_BAD or total >= max(LEAST_ATTEMPTS, round(1 / (1 - target), 6))


def read_objectives(path: Path) -> tuple[Objective, ...]:
    """The objectives of a file, the most particular first and the default last. Raises InvalidInput."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as TOML: {error}") from None
    unknown = set(content) - {"default", "objective"}
    if unknown:
        raise InvalidInput(f"{path}: {', '.join(sorted(unknown))} is not known: write [default] and [[objective]]")
    default = _objective(path, content.get("default", {}), Objective())
    listed = content.get("objective", [])
    if not isinstance(listed, list):
        raise InvalidInput(f"{path}: write [[objective]], with two brackets")
    return (*(_objective(path, each, default) for each in listed), default)


def _objective(path: Path, values: Any, default: Objective) -> Objective:
    names = {each.name for each in fields(Objective)}
    if not isinstance(values, dict) or set(values) - names:
        raise InvalidInput(f"{path}: an objective has {', '.join(sorted(names))} and nothing else")
    found: dict[str, Any] = {each.name: getattr(default, each.name) for each in fields(Objective)}
    found |= {"queue": None, "type": None} | values
    for name in ("queue", "type"):
        if found[name] is not None and not isinstance(found[name], str):
            raise InvalidInput(f"{path}: {name} must be a text")
    for name, most in (("wait_s", None), ("wait_target", 1), ("success_target", 1)):
        value = found[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0 or (most and value >= most):
            wanted = "above 0 and below 1" if most else "above 0"
            raise InvalidInput(f"{path}: {name} must be {wanted}, got {value!r}")
        found[name] = float(value)
    return Objective(**found)

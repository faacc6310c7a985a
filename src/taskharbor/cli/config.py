"""`taskharbor.toml`: flags that a project always gives, in the current directory or above it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final, NamedTuple

from taskharbor.core.errors import InvalidInput

FILE_NAME: Final = "taskharbor.toml"
TABLE: Final = "taskharbor"


_IN_FILES: Final = ("sqlite:///", "json:///")


class Config(NamedTuple):
    path: Path | None
    values: dict[str, Any]
    """By the name of the flag, with _ for -."""

    @property
    def directory(self) -> str | None:
        """Where the file is: what it names, it names from there."""
        return None if self.path is None else str(self.path.parent)


def find_config(root: argparse.ArgumentParser, start: Path | None = None) -> Config:
    """The nearest file, read and its names checked; nothing when there is none."""
    try:
        here = (start or Path.cwd()).absolute()
    except FileNotFoundError:  # somebody removed the directory we stand in
        return Config(None, {})
    for directory in (here, *here.parents):
        path = directory / FILE_NAME
        if path.is_file():
            return Config(path, _seen_from(here, _checked(_read(path), path, root), path))
    return Config(None, {})


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None
    table = found.pop(TABLE, {})
    if not isinstance(table, dict):
        raise InvalidInput(f"{path}: {TABLE} must be a table: [{TABLE}]")
    if twice := sorted(found.keys() & table.keys()):
        raise InvalidInput(f"{path}: {twice[0]} is there twice, in the table [{TABLE}] and outside: keep one")
    return {**found, **table}


def _seen_from(here: Path, values: dict[str, Any], path: Path) -> dict[str, Any]:
    """The values for a process that stands in `here`: paths of stores, lakes and keys are relative to the file."""
    lake = values.get("lake")
    if isinstance(lake, str) and "://" not in lake:
        values = {**values, "lake": str(path.parent / lake)}
    keys = values.get("encryption_keys")
    if isinstance(keys, str):
        values = {**values, "encryption_keys": str(path.parent / keys)}
    url = values.get("url")
    if path.parent == here or not isinstance(url, str):
        return values
    for start in _IN_FILES:
        if url.startswith(start) and not url.startswith((f"{start}/", f"{start}?", f"{start}:")) and url != start:
            from urllib.parse import quote

            return {**values, "url": f"{start}{quote(str(path.parent))}/{url.removeprefix(start)}"}
    return values


def _checked(found: dict[str, Any], path: Path, root: argparse.ArgumentParser) -> dict[str, Any]:
    from taskharbor.cli.options import every_parser, flag_of, is_typed_only, options_of

    actions = [action for _, parser in every_parser(root) for action in options_of(parser)]
    known = {action.dest: flag_of(action)[2:] for action in actions}
    typed = {action.dest for action in actions if is_typed_only(action)}
    values: dict[str, Any] = {}
    for name, value in found.items():
        plain = name.replace("-", "_")
        if plain not in known:
            from difflib import get_close_matches

            near = get_close_matches(plain, known, n=1, cutoff=0.5)
            cure = f"did you mean {known[near[0]]}?" if near else "it takes the names of flags, such as url and queues"
            raise InvalidInput(f"{path}: there is no setting {name!r}: {cure}")
        if plain in typed:
            raise InvalidInput(f"{path}: {name} cannot be set here: type --{known[plain]} each time it is meant")
        values[plain] = value
    return values

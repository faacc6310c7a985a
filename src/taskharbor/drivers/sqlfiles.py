"""SQL lives in `.sql` files beside each driver, under the same names in every dialect. This module reads them.

In the files, tables carry the default prefix (`th_jobs`), so that they run as they are in any SQL shell, and
values are written `:name`. Both are rewritten here, once, when a statement is first asked for.

A line such as `-- ?tenant  AND tenant_id = :tenant` is a comment, unless the statement is asked for `with_lines` of
that name: so a filter that is rarely given costs the others nothing, and the planner sees only what counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from taskharbor.core.errors import HOW_TO_MIGRATE, InvalidInput, SchemaMissing
from taskharbor.drivers.opening import DEFAULT_PREFIX

_TABLE: Final = re.compile(rf"\b{DEFAULT_PREFIX}(?=[a-z])")
# Not the second half of a `::cast`, and not inside a word.
_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z][a-z0-9_]*)")
_OPTIONAL: Final = r"^(\s*)-- \?(?:{})  "
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Migration(NamedTuple):
    version: int
    name: str
    sql: str


class Statements(Mapping[str, str]):
    """The statements of one dialect by file name without `.sql`, for one table prefix.

    `style` says how values are marked: `named` keeps `:name` (sqlite3, SQLAlchemy's text()), `pyformat` makes it
    `%(name)s` (psycopg, PyMySQL).
    """

    def __init__(self, package: str, prefix: str, style: str) -> None:
        self._dialect = (package, prefix, style)
        self._by_name: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = _statement(*self._dialect, name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_texts(self._dialect[0]))

    def __len__(self) -> int:
        return len(_texts(self._dialect[0]))


def with_lines(name: str, lines: Iterable[str]) -> str:
    """What the statement is called with its optional lines of these names; those that it has no line for are fine."""
    return "+".join([name, *sorted(lines)])


@lru_cache(maxsize=64)
def migrations(package: str, prefix: str) -> tuple[Migration, ...]:
    """The migrations of one dialect in order: files named `001_what_it_does.sql`."""
    found = []
    for name, text in _read(package, "migrations"):
        number, _, title = name.partition("_")
        found.append(Migration(int(number), title, _prefixed(text, prefix)))
    return tuple(sorted(found))


def later(package: str, prefix: str, after: int) -> tuple[Migration, ...]:
    """The migrations that tables of version `after` lack; all of them for 0. InvalidInput if there is no such one."""
    known = migrations(package, prefix)
    first, last = known[0].version, known[-1].version
    if after and after not in {migration.version for migration in known}:
        raise InvalidInput(f"there is no version {after} of the tables: this TaskHarbor knows {first} to {last}")
    return tuple(migration for migration in known if migration.version > after)


class Numbered(NamedTuple):
    """A statement whose values are marked `$1`, `$2`, …, and the names of the values in that order."""

    text: str
    names: tuple[str, ...]


def numbered(text: str) -> Numbered:
    """A statement of style `named` as servers take it, so that a client library need not look for marks in it."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    return Numbered(_PARAMETER.sub(lambda mark: f"${names.index(mark[1]) + 1}", text), names)


@cache
def _read(package: str, folder: str) -> tuple[tuple[str, str], ...]:
    entries = files(package).joinpath(folder).iterdir()
    return tuple(
        (entry.name.removesuffix(".sql"), entry.read_text("utf-8"))
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.name.endswith(".sql")
    )


@cache
def _texts(package: str) -> Mapping[str, str]:
    return dict(_read(package, "sql"))


@lru_cache(maxsize=4_000)
def _statement(package: str, prefix: str, style: str, name: str) -> str:
    """For every driver of the process: a dialect has nearly two hundred statements, and most drivers ask for a few."""
    plain, *lines = name.split("+")
    text = _prefixed(_texts(package)[plain], prefix)
    if lines:
        marks = re.compile(_OPTIONAL.format("|".join(map(re.escape, lines))), re.MULTILINE)
        text = marks.sub(r"\1", text)
    return _styled(_without_comments(text), style)


def _prefixed(text: str, prefix: str) -> str:
    # The prefix was checked when the URL was parsed: it can be nothing but a plain name.
    return _TABLE.sub(prefix, text)


def _without_comments(text: str) -> str:
    return _COMMENT.sub("", text).strip().removesuffix(";")


def _styled(text: str, style: str) -> str:
    if style == "named":
        return text
    return _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))


def outdated(applied: int, needed: int, prefix: str) -> SchemaMissing:
    """What to raise about tables that have not every migration yet."""
    if applied == 0:
        return SchemaMissing(f"there are no TaskHarbor tables (called {prefix}…) in the database yet: {HOW_TO_MIGRATE}")
    return SchemaMissing(f"the tables are at version {applied}, this TaskHarbor needs {needed}: {HOW_TO_MIGRATE}")

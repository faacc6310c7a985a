"""Checks made of annotations, without any library: the JSON types, and the few others that JSON text can stand for.

A check is made once, when a task is defined. `dump` takes what a caller passes to what JSON can hold, `load` takes
that to what the handler is promised. Both are strict: "5" is no int, and a bool is no int; an int is a float.
"""

from __future__ import annotations

import types
import typing
from collections import abc
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final, cast
from uuid import UUID

from taskharbor.core.model import JsonValue

_NONE: Final = type(None)
_JSON_TYPES: Final[frozenset[type]] = frozenset((str, int, float, bool, list, dict, _NONE))
_NOTHING: Final[frozenset[type]] = frozenset()


class Unsupported(Exception):
    """The annotation is beyond these rules."""


class Mismatch(Exception):
    """A value does not fit; `path` leads to it inside the argument. Where the problem may quote it, `unquoted` is the
    problem without that. The path may quote too: it has keys of mappings in it."""

    def __init__(self, problem: str, value: object, path: str = "", *, unquoted: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.value = value
        self.path = path
        self.unquoted = unquoted or problem

    def inside(self, step: str) -> Mismatch:
        """The same, seen from one level further out."""
        return Mismatch(self.problem, self.value, step + self.path, unquoted=self.unquoted)


class Check:
    """The rule for one annotation. Values whose class is in `exact` are right as they are, without a closer look."""

    def __init__(self, name: str, exact: frozenset[type] = _NOTHING, *, converts: bool = False) -> None:
        self.name = name
        self.exact = exact
        self.converts = converts

    def dump(self, value: Any) -> JsonValue:
        raise NotImplementedError

    def load(self, value: JsonValue) -> Any:
        raise NotImplementedError

    def widened(self, value: int) -> JsonValue:
        """The number as this annotation has it: a float where it says so, for an int is taken for one."""
        return value

    def mismatch(self, value: object) -> Mismatch:
        return Mismatch(f"must be {self.name}", value)


class Anything(Check):
    """No annotation, `Any` or `object`: whatever the codec can write."""

    def __init__(self) -> None:
        super().__init__("anything JSON can hold", _JSON_TYPES)

    def dump(self, value: Any) -> JsonValue:
        return value

    load = dump


class Plain(Check):
    """A JSON type, with the classes that extend it."""

    def __init__(self, name: str, classes: tuple[type, ...], exact: Iterable[type]) -> None:
        super().__init__(name, frozenset(exact))
        self._classes = classes

    def dump(self, value: Any) -> JsonValue:
        if isinstance(value, self._classes) and (bool in self._classes or not isinstance(value, bool)):
            return value
        raise self.mismatch(value)

    load = dump


class Float(Plain):
    def __init__(self) -> None:
        super().__init__("float", (float, int), (float, int))

    def widened(self, value: int) -> JsonValue:
        try:
            return float(value)
        except OverflowError:  # beyond all floats, so equal to none
            return value


class ListOf(Check):
    def __init__(self, item: Check, classes: tuple[type, ...] = (list,)) -> None:
        super().__init__(f"list[{item.name}]", converts=item.converts)
        self._item = item
        self._classes = classes

    def dump(self, value: Any) -> JsonValue:
        return self._each(value, self._item.dump)

    def load(self, value: JsonValue) -> Any:
        return self._each(value, self._item.load)

    def _each(self, value: Any, convert: Callable[[Any], Any]) -> list[Any]:
        if not isinstance(value, self._classes):
            raise self.mismatch(value)
        exact = self._item.exact
        items: list[Any] = []
        for number, item in enumerate(cast("Iterable[Any]", value)):
            try:
                items.append(item if type(item) in exact else convert(item))
            except Mismatch as found:
                raise found.inside(f"[{number}]") from None
        return items


class DictOf(Check):
    def __init__(self, item: Check) -> None:
        super().__init__(f"dict[str, {item.name}]", converts=item.converts)
        self._item = item

    def dump(self, value: Any) -> JsonValue:
        return self._each(value, self._item.dump)

    def load(self, value: JsonValue) -> Any:
        return self._each(value, self._item.load)

    def _each(self, value: Any, convert: Callable[[Any], Any]) -> dict[str, Any]:
        if not isinstance(value, abc.Mapping):
            raise self.mismatch(value)
        exact = self._item.exact
        items = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise Mismatch("must have text for keys", key)
            try:
                items[key] = item if type(item) in exact else convert(item)
            except Mismatch as found:
                raise found.inside(f"[{key!r}]") from None
        return items


class OneOf(Check):
    """A Literal."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        super().__init__(" or ".join(map(repr, values)))
        # With the class, because True == 1 == 1.0.
        self._values = {(type(value), value) for value in values}

    def dump(self, value: Any) -> JsonValue:
        try:
            if (type(value), value) in self._values:
                return value
        except TypeError:  # not hashable, so none of them
            pass
        raise self.mismatch(value)

    load = dump


class EnumValue(Check):
    """A member of an Enum, stored as its value; the value itself is taken too."""

    def __init__(self, members: type[Enum]) -> None:
        shown = " or ".join(repr(member.value) for member in members)
        super().__init__(f"{members.__name__} ({shown})", converts=True)
        self._members = members
        self._by_value = {(type(member.value), member.value): member for member in members}

    def dump(self, value: Any) -> JsonValue:
        return self._member(value).value

    def load(self, value: JsonValue) -> Any:
        return self._member(value)

    def _member(self, value: Any) -> Enum:
        if isinstance(value, self._members):
            return value
        try:
            return self._by_value[type(value), value]
        except (KeyError, TypeError):
            raise self.mismatch(value) from None


class AsText(Check):
    """A class that JSON has no word for, stored as text; that text itself is taken too."""

    def __init__(self, of: type, parse: Callable[[str], Any], write: Callable[[Any], str]) -> None:
        super().__init__(of.__name__, converts=True)
        self._of = of
        self._parse = parse
        self._write = write

    def dump(self, value: Any) -> JsonValue:
        return self._write(self.load(value))

    def load(self, value: JsonValue) -> Any:
        # A datetime is a date to Python, but it would come back as one with its time cut off.
        if isinstance(value, self._of) and not (self._of is date and isinstance(value, datetime)):
            return value
        if isinstance(value, str):
            try:
                return self._parse(value)
            except (ValueError, InvalidOperation):
                pass
        raise self.mismatch(value)


class AnyOf(Check):
    """A union. What JSON has no word for is tried first, or its text would always pass for a str."""

    def __init__(self, options: list[Check]) -> None:
        converts = any(option.converts for option in options)
        plain = _NOTHING.union(*(option.exact for option in options))
        super().__init__(
            " or ".join(option.name for option in options), plain & {_NONE} if converts else plain, converts=converts
        )
        self._options = sorted(options, key=lambda option: not option.converts)

    def dump(self, value: Any) -> JsonValue:
        return self._first([option.dump for option in self._options], value)

    def load(self, value: JsonValue) -> Any:
        return self._first([option.load for option in self._options], value)

    def widened(self, value: int) -> JsonValue:
        # Where both an int and a float will do, they are the same number.
        return next((option.widened(value) for option in self._options if float in option.exact), value)

    def _first(self, ways: list[Callable[[Any], Any]], value: Any) -> Any:
        inside = None
        for way in ways:
            try:
                return way(value)
            except Mismatch as found:
                inside = found if found.path else inside
        # What is wrong deep inside says more than a list of everything that would have been right.
        raise inside or self.mismatch(value)


def _finite(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return number


_ANYTHING: Final = Anything()
_NONE_CHECK: Final = Plain("None", (_NONE,), (_NONE,))
_KNOWN: Final[dict[Any, Check]] = {
    str: Plain("str", (str,), (str,)),
    int: Plain("int", (int,), (int,)),
    float: Float(),
    bool: Plain("bool", (bool,), (bool,)),
    list: Plain("list", (list,), (list,)),
    dict: Plain("dict", (dict,), (dict,)),
    None: _NONE_CHECK,
    _NONE: _NONE_CHECK,
    Any: _ANYTHING,
    object: _ANYTHING,
    datetime: AsText(datetime, datetime.fromisoformat, datetime.isoformat),
    date: AsText(date, date.fromisoformat, date.isoformat),
    UUID: AsText(UUID, UUID, str),
    Decimal: AsText(Decimal, _finite, str),
}


def check_for(annotation: Any) -> Check:
    """The check that these rules give an annotation; Unsupported if they do not reach that far."""
    try:
        if annotation in _KNOWN:
            return _KNOWN[annotation]
    except TypeError:  # not hashable
        raise Unsupported from None
    if isinstance(annotation, typing.NewType):
        return check_for(annotation.__supertype__)
    if type(annotation).__name__ == "TypeAliasType":
        return check_for(annotation.__value__)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        if all(type(member.value) in _JSON_TYPES - {list, dict} for member in annotation):
            return EnumValue(annotation)
        raise Unsupported
    return _check_for_generic(typing.get_origin(annotation), typing.get_args(annotation))


def _check_for_generic(origin: Any, inner: tuple[Any, ...]) -> Check:
    if origin is typing.Annotated and all(isinstance(note, str) for note in inner[1:]):
        return check_for(inner[0])  # only words for people; anything else may be a rule
    if origin in (typing.Union, types.UnionType):
        return AnyOf([check_for(option) for option in inner])
    if origin is typing.Literal and all(type(value) in (str, int, bool, _NONE) for value in inner):
        return OneOf(inner)
    if origin is list or origin is abc.Sequence:
        item = check_for(inner[0])
        if origin is list:
            return _KNOWN[list] if item is _ANYTHING else ListOf(item)
        return ListOf(item, (list, tuple))
    if origin in (dict, abc.Mapping) and inner[0] is str:
        item = check_for(inner[1])
        return _KNOWN[dict] if origin is dict and item is _ANYTHING else DictOf(item)
    raise Unsupported


def optional(check: Check) -> Check:
    """The same, with None allowed: what a default of None says even where the annotation does not."""
    return check if _NONE in check.exact else AnyOf([check, _NONE_CHECK])

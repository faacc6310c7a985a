"""From a call to a payload and back: the parameters of a function, prepared once so that each job costs little."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from taskharbor.app.annotations import Check, Mismatch, Unsupported, check_for, optional
from taskharbor.app.batches import Batch
from taskharbor.app.context import Context
from taskharbor.app.errors import InvalidArguments
from taskharbor.app.models import Model
from taskharbor.core.errors import InvalidInput, InvalidPayload
from taskharbor.core.model import JsonValue

CONTEXT: Final = "context"
"""The parameter that is no argument: the worker gives it."""

_Parameter = inspect.Parameter
_LONGEST_SHOWN: Final = 60
_SOME_ARGUMENT: Final = "an argument"
"""One that came in `**arguments`: its name is the caller's own, and may not be repeated everywhere."""


class Binding:
    """What one task takes."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        parameters = _parameters(task, function)
        hints = _hints(task, function, parameters)
        if CONTEXT in parameters:
            _check_context(task, hints.get(CONTEXT, Any))
        self._prepare(task, parameters, hints)

    def _prepare(self, task: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> None:
        self.task = task
        self._extra: Check | None = None
        self._checks: dict[str, Check] = {}
        required = []
        for name, parameter in parameters.items():
            if name == CONTEXT:
                continue
            check = _check(hints.get(name, Any), f"{task}: argument {name!r}")
            if parameter.kind is _Parameter.VAR_KEYWORD:
                self._extra = check
                continue
            self._checks[name] = optional(check) if parameter.default is None else check
            if parameter.default is _Parameter.empty:
                required.append(name)
        self._positions = [
            name
            for name, parameter in parameters.items()
            if parameter.kind is _Parameter.POSITIONAL_OR_KEYWORD and name != CONTEXT
        ]
        self._required = frozenset(required)
        self._given_defaults = {name: parameters[name].default for name in self._checks if name not in self._required}
        self._defaults: dict[str, JsonValue] | None = None
        self._exact = {name: check.exact for name, check in self._checks.items()}

    def dump(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, JsonValue]:
        """The arguments of a call by name, checked and in terms of JSON. Defaults are left to the handler."""
        values = dict(named)
        if positional:
            self._name_positional(positional, values)
        exact = self._exact
        for name, value in values.items():
            # Nearly every argument is of a plain type and right: that costs no more than this.
            if name not in exact or type(value) not in exact[name]:
                values[name] = self._dumped(name, value)
        if not values.keys() >= self._required:
            self._refuse_missing(values)
        return values

    def load(self, values: JsonValue) -> dict[str, Any]:
        """The arguments for the handler, from what a payload held; InvalidArguments if it does not take them."""
        if type(values) is not dict:
            raise InvalidArguments.about(
                f"{self.task}: the payload must be a JSON object with the arguments by name, "
                f"got {type(values).__name__}"
            )
        exact = self._exact
        for name, value in values.items():
            if name not in exact or type(value) not in exact[name]:
                values[name] = self._loaded(name, value)
        if not values.keys() >= self._required:
            self._refuse_missing(values)
        return values

    def dump_partly(
        self, positional: tuple[Any, ...], named: Mapping[str, Any], holds: Callable[[Any], bool]
    ) -> tuple[dict[str, JsonValue], dict[str, Any]]:
        """`dump` of a call of which some arguments are not known yet: those, as they are, come second."""
        values = dict(named)
        if positional:
            self._name_positional(positional, values)
        unknown = {name: value for name, value in values.items() if holds(value)}
        for name in unknown:
            self._check_of(name)
        if not values.keys() >= self._required:
            self._refuse_missing(values)
        known = {name: self._dumped(name, value) for name, value in values.items() if name not in unknown}
        return known, unknown

    def completed(self, values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """What a payload holds as the function will have it, in terms of JSON: with the defaults of what was left out,
        and floats where floats are due. Equal calls are equal then, however they were written."""
        if self._defaults is None:
            self._defaults = self._known_defaults()
        found = {**self._defaults, **values}
        for name, value in found.items():
            if type(value) is int and name in self._checks:
                found[name] = self._checks[name].widened(value)
        return found

    def _known_defaults(self) -> dict[str, JsonValue]:
        """Those that JSON has words for, as it has them. Of an object that marks "left out", nothing is known."""
        known: dict[str, JsonValue] = {}
        for name, value in self._given_defaults.items():
            with contextlib.suppress(Mismatch, TypeError, ValueError, RecursionError):
                known[name] = json.loads(json.dumps(self._checks[name].dump(value), allow_nan=False))
        return known

    def culprit(self, values: Mapping[str, JsonValue], encode: Callable[[JsonValue], bytes]) -> InvalidPayload | None:
        """Which argument it is that the codec does not take."""
        for name, value in values.items():
            try:
                encode(value)
            except InvalidPayload as error:
                which = f"argument {name!r}" if name in self._checks else _SOME_ARGUMENT
                return InvalidArguments(
                    f"{self.task}: argument {name!r} is {error}",
                    unquoted=f"{self.task}: {which} is {error.unquoted or 'not written by the codec'}",
                )
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._checks)

    @property
    def known(self) -> tuple[str, ...] | None:
        """What an argument may be called in a payload; None if that is the caller's own choice."""
        return self.names if self._extra is None else None

    def _dumped(self, name: str, value: Any) -> JsonValue:
        try:
            return self._check_of(name).dump(value)
        except Mismatch as found:
            raise self._misfit(name, found, _shown(found.value)) from None

    def _loaded(self, name: str, value: JsonValue) -> Any:
        try:
            return self._check_of(name).load(value)
        except Mismatch as found:
            # Not the value: this text goes to logs and the DLQ, and the value may be nobody's business there.
            raise self._misfit(name, found, _kind(found.value)) from None

    def _misfit(self, name: str, found: Mismatch, got: str) -> InvalidArguments:
        which = f"argument {name!r}" if name in self._checks else _SOME_ARGUMENT
        where = f"something inside {which}" if found.path else which
        return InvalidArguments(
            f"{self.task}: argument '{name}{found.path}' {found.problem}, got {got}",
            unquoted=f"{self.task}: {where} {found.unquoted}, got {_kind(found.value)}",
        )

    def _check_of(self, name: str) -> Check:
        check = self._checks.get(name)
        if check is not None:
            return check
        if name == CONTEXT:
            raise InvalidArguments.about(f"{self.task}: 'context' is no argument: the worker gives it to the handler")
        if self._extra is None or not isinstance(name, str):
            raise self._unknown(name)
        return self._extra

    def _name_positional(self, positional: tuple[Any, ...], values: dict[str, Any]) -> None:
        if len(positional) > len(self._positions):
            takes = ", ".join(self._positions) or "none"
            raise InvalidArguments.about(
                f"{self.task}: got {len(positional)} arguments without a name, but takes {len(self._positions)} "
                f"({takes}): give the others by name"
            )
        for name, value in zip(self._positions, positional, strict=False):
            if name in values:
                raise InvalidArguments.about(f"{self.task}: argument {name!r} was given twice, by place and by name")
            values[name] = value

    def _unknown(self, name: str) -> InvalidArguments:
        near = difflib.get_close_matches(str(name), self._checks, n=1)
        hint = f"did you mean {near[0]!r}? It" if near else "it"
        takes = ", ".join(self._checks) or "no arguments"
        return InvalidArguments(
            f"{self.task}: unexpected argument {name!r}: {hint} takes {takes}",
            unquoted=f"{self.task}: an unexpected argument: it takes {takes}",
        )

    def _refuse_missing(self, values: Mapping[str, Any]) -> NoReturn:
        missing = [repr(name) for name in self._checks if name in self._required and name not in values]
        raise InvalidArguments.about(f"{self.task}: missing argument{'s' * (len(missing) > 1)} {', '.join(missing)}")


def _parameters(task: str, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise InvalidInput(f"{task}: the parameters of {function!r} cannot be read: wrap it in a function") from None
    for number, (name, parameter) in enumerate(parameters.items()):
        if parameter.kind is _Parameter.VAR_POSITIONAL:
            raise InvalidInput(
                f"{task}: takes *{name}, but a payload has names for all arguments: take a list instead, {name}: list"
            )
        if parameter.kind is _Parameter.POSITIONAL_ONLY:
            raise InvalidInput(
                f"{task}: takes {name!r} by place only, but a payload has names for all arguments: remove the / "
                "from its parameters"
            )
        if number == 0 and name in ("self", "cls"):
            raise InvalidInput(
                f"{task}: takes {name!r}, but a worker has no object to give: make it a function outside the class"
            )
        if name == CONTEXT and parameter.kind is _Parameter.VAR_KEYWORD:
            raise InvalidInput(f"{task}: takes **context, but 'context' is what the worker gives: rename it")
    return parameters


def _hints(task: str, function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """The annotations of the parameters. NameError while one of them names what is not defined yet."""
    given = {
        name: parameter.annotation
        for name, parameter in parameters.items()
        if parameter.annotation is not _Parameter.empty
    }
    names = names_known_to(function)
    if CONTEXT in given:
        # Often imported for type checkers only, and not needed: the name of the parameter says it.
        try:
            typing.get_type_hints(types.SimpleNamespace(__annotations__={CONTEXT: given[CONTEXT]}), names)
        except NameError:
            del given[CONTEXT]
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__=given), names, include_extras=True)
    except TypeError as error:
        raise InvalidInput(f"{task}: cannot read its annotations: {error}") from None


def names_known_to(function: Callable[..., Any]) -> dict[str, Any]:
    """What the annotations of a function may name."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "func", inner)  # of a functools.partial
    names: dict[str, Any] = getattr(inner, "__globals__", {})
    return names


def _check(annotation: Any, where: str) -> Check:
    try:
        return check_for(annotation)
    except Unsupported:
        if Batch in (annotation, typing.get_origin(annotation)):
            raise InvalidInput(f"{where} is a Batch, which only a batch task is given: @harbor.task(batch=…)") from None
        return Model(annotation, where)


def _check_context(task: str, annotation: Any) -> None:
    options = (annotation, *typing.get_args(annotation))
    if annotation not in (Any, object) and Context not in options:
        raise InvalidInput(
            f"{task}: the parameter 'context' is for taskharbor.Context, which the worker gives: "
            "annotate it so, or rename yours"
        )


def _shown(value: object) -> str:
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception:
        text = "(which cannot be shown)"
    return f"{_kind(value)} {text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + '…'}"


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__

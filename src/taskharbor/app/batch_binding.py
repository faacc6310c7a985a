"""The arguments of a batch task: those of one job, which the annotation of its handler names, `Batch[Document]`.

`Document` may be a dataclass, a NamedTuple, a TypedDict or a pydantic model, whose fields are the arguments, or
`dict[str, …]` for any names with values of that kind. Without it the arguments are a dict of anything.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from typing import Any, Final

from taskharbor.app.annotations import Mismatch
from taskharbor.app.batches import Batch
from taskharbor.app.binding import CONTEXT, Binding, names_known_to
from taskharbor.app.errors import InvalidArguments
from taskharbor.app.models import Model
from taskharbor.core.errors import InvalidInput
from taskharbor.core.model import JsonValue

_Parameter = inspect.Parameter
_SHAPE: Final = "def {}(batch: Batch[…])"
_LEFT_OUT: Final = object()
_MARKS: Final = (typing.Required, typing.NotRequired)
_RESULTS: Final = (abc.Sequence, abc.Mapping)


class ItemBinding(Binding):
    """What one job of a batch task takes."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        parameter = _only_parameter(task, function)
        item = _item_type(task, function, parameter)
        self._item: Any = item
        self._model: Model | None = None
        self._make: Callable[..., Any] | None = None
        parameters, hints = self._shape(task, item)
        if CONTEXT in parameters:
            raise InvalidInput(
                f"{task}: {_name(item)} has a field 'context', which no argument may be called: rename it"
            )
        self._has_rules = self._make is not None and hasattr(item, "__post_init__")
        self._prepare(task, parameters, hints)

    def _shape(self, task: str, item: Any) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
        if item in (Any, object, dict) or typing.get_origin(item) in (dict, abc.Mapping):
            inner = typing.get_args(item) or (str, Any)
            if inner[0] is not str:
                raise InvalidInput(f"{task}: arguments have names, so Batch[dict[str, …]], got Batch[{_name(item)}]")
            anything = _Parameter("arguments", _Parameter.VAR_KEYWORD)
            return {"arguments": anything}, {"arguments": inner[1]}
        if typing.is_typeddict(item):
            return _of_typed_dict(item)
        if isinstance(item, type) and (dataclasses.is_dataclass(item) or _is_named_tuple(item)):
            self._make = item
            return inspect.signature(item).parameters, typing.get_type_hints(item, include_extras=True)
        if isinstance(item, type) and hasattr(item, "model_validate"):
            # Its own rules hold for all fields together.
            self._model = Model(item, f"{task}: its item")
            return inspect.signature(item).parameters, {}
        raise InvalidInput(
            f"{task}: takes Batch[{_name(item)}], but the arguments of a job have names: "
            "use a dataclass, a NamedTuple, a TypedDict, a pydantic model or dict[str, …]"
        )

    def dump(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, JsonValue]:
        """As for a plain task; one item as a whole is taken too."""
        if self._model is not None:
            return self._dump_model(positional, named)
        if len(positional) == 1 and not named and self._make is not None and isinstance(positional[0], self._item):
            whole = positional[0]
            positional, named = (), {name: getattr(whole, name) for name in self.names}
        values = super().dump(positional, named)
        if self._has_rules:
            self._made(super().load(dict(values)))  # they hold here as they will hold in the worker
        return values

    @property
    def known(self) -> tuple[str, ...] | None:
        if self._model is None or self._extra is not None:
            return super().known
        # What pydantic writes may be no name in Python, and is not in the signature then.
        written = (field.serialization_alias or field.alias for field in self._item.model_fields.values())
        return (*self.names, *(name for name in written if name is not None))

    def load(self, values: JsonValue) -> Any:
        """The arguments of one job as the handler is promised them."""
        if self._model is None:
            arguments = super().load(values)
            return arguments if self._make is None else self._made(arguments)
        if not isinstance(values, dict):
            super().load(values)  # which says what is wrong with it
        try:
            return self._model.load(values)
        except Mismatch as found:
            raise self._refused(found) from None

    def _known_defaults(self) -> dict[str, JsonValue]:
        known = super()._known_defaults()
        for field in dataclasses.fields(self._item) if dataclasses.is_dataclass(self._item) else ():
            # Of other factories nobody knows what they will make in the worker.
            if field.name in self._checks and field.default_factory in (list, dict):
                known[field.name] = field.default_factory()
        return known

    def _dump_model(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, JsonValue]:
        assert self._model is not None
        if len(positional) > 1 or (positional and named) or (positional and not isinstance(positional[0], self._item)):
            raise InvalidArguments.about(f"{self.task}: takes its arguments by name, or one {_name(self._item)}")
        try:
            dumped = self._model.dump(positional[0] if positional else dict(named))
        except Mismatch as found:
            raise self._refused(found) from None
        assert isinstance(dumped, dict)
        return dumped

    def _refused(self, found: Mismatch) -> InvalidArguments:
        # Not the value: this text may go to the DLQ.
        item = _name(self._item)
        return InvalidArguments(
            f"{self.task}: argument '{found.path.lstrip('.') or item}' {found.problem}",
            unquoted=f"{self.task}: {'something inside ' * bool(found.path)}{item} {found.unquoted}",
        )

    def _made(self, arguments: dict[str, Any]) -> Any:
        assert self._make is not None
        try:
            return self._make(**arguments)
        except Exception as error:  # a rule of its own, which these arguments break
            said = f"{self.task}: {_name(self._item)} refuses its arguments"
            raise InvalidArguments(f"{said}: {error}", unquoted=f"{said} ({type(error).__name__})") from None


def _only_parameter(task: str, function: Callable[..., Any]) -> inspect.Parameter:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise InvalidInput(f"{task}: the parameters of {function!r} cannot be read: wrap it in a function") from None
    if CONTEXT in parameters:
        raise InvalidInput(
            f"{task}: takes 'context', which is about one job: with batch=… each item of the batch is one, "
            "with `cancelled`, `progress` and `extend`"
        )
    by_place = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)
    only = next(iter(parameters.values()), None)
    shown = inspect.Signature([each.replace(annotation=_Parameter.empty) for each in parameters.values()])
    if only is None or len(parameters) > 1 or only.kind not in by_place or only.name in ("self", "cls"):
        raise InvalidInput(
            f"{task}: with batch=… it is given many jobs at once in one parameter, {_SHAPE.format(_plain(function))}, "
            f"but it takes {shown}"
        )
    return only


def _item_type(task: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """What the batch is of. NameError while the annotation names what is not defined yet."""
    names = names_known_to(function)
    _check_results(task, function, names)
    if parameter.annotation is _Parameter.empty:
        return Any
    given = types.SimpleNamespace(__annotations__={"batch": parameter.annotation})
    try:
        annotation = typing.get_type_hints(given, names, include_extras=True)["batch"]
    except TypeError as error:
        raise InvalidInput(f"{task}: cannot read its annotations: {error}") from None
    if annotation in (Any, Batch):
        return Any
    if typing.get_origin(annotation) is not Batch:
        raise InvalidInput(
            f"{task}: with batch=… its parameter is a Batch, {_SHAPE.format(_plain(function))}, "
            f"but {parameter.name!r} is annotated {_name(annotation)}"
        )
    (item,) = typing.get_args(annotation)
    return Any if isinstance(item, typing.TypeVar) else item


def _check_results(task: str, function: Callable[..., Any], names: dict[str, Any]) -> None:
    """Refuse a handler that says it returns what is no result for each job, before it has run for nothing."""
    result = inspect.signature(function).return_annotation
    if result is inspect.Signature.empty:
        return
    try:
        given = types.SimpleNamespace(__annotations__={"return": result})
        result = typing.get_type_hints(given, names)["return"]
    except (NameError, TypeError):  # of no use to anybody but type checkers
        return
    union = typing.get_origin(result) in (typing.Union, types.UnionType)
    for option in typing.get_args(result) if union else (result,):
        kind = typing.get_origin(option) or option
        is_class = isinstance(kind, type) and kind not in (Any, object, type(None))
        if (is_class and not issubclass(kind, _RESULTS)) or kind in (str, bytes):
            raise InvalidInput(
                f"{task}: says it returns {_name(result)}, but a batch has a result for each of its jobs: return a "
                "list with one for each, a mapping by id, or nothing"
            )


def _of_typed_dict(item: Any) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    hints: dict[str, Any] = {}
    parameters: dict[str, inspect.Parameter] = {}
    for name, hint in typing.get_type_hints(item, include_extras=True).items():
        mark = typing.get_origin(hint)
        # The class itself does not see the marks of annotations that are text.
        is_needed = mark is typing.Required or (mark is not typing.NotRequired and name in item.__required_keys__)
        hints[name] = typing.get_args(hint)[0] if mark in _MARKS else hint
        default = _Parameter.empty if is_needed else _LEFT_OUT
        parameters[name] = _Parameter(name, _Parameter.KEYWORD_ONLY, default=default)
    return parameters, hints


def _is_named_tuple(item: type) -> bool:
    return issubclass(item, tuple) and hasattr(item, "_fields")


def _plain(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "handler"))


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)

"""Checks for every other annotation, made by pydantic where it is installed."""

from __future__ import annotations

from typing import Any

from taskharbor.app.annotations import Check, Mismatch
from taskharbor.core.errors import InvalidInput, MissingExtra
from taskharbor.core.model import JsonValue


class Model(Check):
    """Whatever pydantic has rules for: models, dataclasses, tuples, constrained types.

    A value is written as JSON first and then checked as JSON, strictly: what passes here is what the worker will
    be able to read.
    """

    def __init__(self, annotation: Any, where: str) -> None:
        name = getattr(annotation, "__name__", None) or str(annotation)
        super().__init__(name, converts=True)
        try:
            from pydantic import TypeAdapter, ValidationError
            from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
            from pydantic_core import PydanticSerializationError, to_json
        except ImportError:
            raise MissingExtra(
                f"{where} is annotated {name}, which needs pydantic to be checked: pip install 'taskharbor[pydantic]', "
                "or use str, int, float, bool, None, list, dict, Literal, Enum, datetime, date, UUID or Decimal"
            ) from None
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        except (PydanticSchemaGenerationError, PydanticUserError):
            raise InvalidInput(
                f"{where} is annotated {name}, which cannot be written as JSON and read again: "
                "use a pydantic model, a dataclass or a JSON type, and pass a reference such as an id"
            ) from None
        self._refusal = ValidationError
        self._unwritable = PydanticSerializationError
        self._to_json = to_json

    def dump(self, value: Any) -> JsonValue:
        # For the round trip: computed fields are none of the arguments, and would be refused on the way back.
        return self._adapter.dump_python(self.load(value), mode="json", by_alias=True, round_trip=True)

    def load(self, value: JsonValue) -> Any:
        try:
            return self._adapter.validate_json(self._to_json(value, by_alias=True, round_trip=True), strict=True)
        except self._unwritable:
            raise self.mismatch(value) from None
        except self._refusal as refusal:
            first = refusal.errors(include_url=False, include_context=False)[0]
            path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
            # Messages may quote, the tag of a union for one, and those of validators what they like.
            said, unquoted = f"is not valid: {first['msg']}", f"is not valid ({first['type']})"
            raise Mismatch(said, first["input"], path, unquoted=unquoted) from None


def jsonable(value: Any) -> Any:
    """`value` in terms of JSON, as pydantic would write it; ImportError without pydantic, ValueError if it cannot."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, by_alias=True, round_trip=True)

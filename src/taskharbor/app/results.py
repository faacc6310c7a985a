"""What a handler returns, as bytes to store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from taskharbor.app.discreet import unquoted
from taskharbor.core.codec import Codec, odd_key
from taskharbor.core.errors import InvalidPayload


def encode_result(task: str, value: Any, codec: Codec) -> bytes | None:
    """None stays None; JSON is written as it is; what is left is put into terms of JSON first."""
    if value is None:
        return None
    try:
        return codec.encode(value)
    except InvalidPayload:
        pass  # most results are JSON, so the others are found out by trying
    try:
        _refuse_odd_keys(value)
        return codec.encode(_jsonable(value))
    except (InvalidPayload, ValueError, RecursionError) as error:
        what = f"{task}: its result, of type {type(value).__name__}, cannot be stored"
        cure = "return JSON, or store it elsewhere and return a reference"
        raise InvalidPayload(f"{what} ({error}): {cure}", unquoted=f"{what} ({unquoted(error)}): {cure}") from None


def _refuse_odd_keys(value: Any) -> None:
    """With pydantic installed the key 1 would be stored as "1", without it be refused, and two keys could become one:
    so it is refused everywhere, as it is in arguments. Models have rules of their own."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise odd_key(key)
            _refuse_odd_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_odd_keys(inner)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _refuse_odd_keys(getattr(value, field.name, None))


def _jsonable(value: Any) -> Any:
    try:
        from taskharbor.app.models import jsonable

        return jsonable(value)
    except ImportError:
        return _by_own_rules(value)


def _by_own_rules(value: Any) -> Any:
    match value:
        case Enum():
            return _by_own_rules(value.value)
        case datetime() | date():
            return value.isoformat()
        case UUID() | Decimal():
            return str(value)
        case Mapping():
            return {key: _by_own_rules(item) for key, item in value.items()}
        case list() | tuple() | AbstractSet():
            return [_by_own_rules(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _by_own_rules(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value

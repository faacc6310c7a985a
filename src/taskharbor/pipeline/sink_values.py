"""Single values of a row, from what Spark and Arrow have to what a job has."""

from __future__ import annotations

import base64
import json
import math
import secrets
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from taskharbor.core.codec import JsonCodec
from taskharbor.core.errors import InvalidInput, InvalidPayload

_CODEC: Final = JsonCodec()
_AT_ONCE: Final = 500


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


check_json: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode
"""Raises ValueError for text that is not strict JSON."""


def are_json(texts: Sequence[str]) -> bool:
    """Whether each of the texts is strict JSON, by one look at many of them.

    They are read as one array with a word between each two that none of them can know. If every second item is that
    word, no text reached beyond its place, and each was exactly one value.
    """
    word = secrets.token_hex(16)
    between = f',"{word}",'
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        try:
            items = check_json("[" + between.join(some) + "]")
        except (ValueError, RecursionError):
            return False
        if len(items) != 2 * len(some) - 1 or items[1::2] != [word] * (len(some) - 1):
            return False
    return True


def number_value(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a whole number, got {value!r}") from None


def moment_value(value: Any, name: str) -> datetime:
    """A time from text in ISO 8601; one without an offset is refused by intake, like any naive time."""
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a time such as 2031-05-01T12:00:00+00:00, got {value!r}") from None


def meta_value(value: Any) -> dict[str, str] | None:
    """A map of texts from a map, a struct, the pairs Arrow makes of a map, or JSON text."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = check_json(value)
        except ValueError:
            raise InvalidInput("meta is no JSON: give an object of texts") from None
    if isinstance(value, list):
        value = dict(value)
    if not isinstance(value, dict):
        raise InvalidInput(f"meta must map text to text, got {type(value).__name__}")
    return {str(name): text for name, text in value.items() if text is not None}


def arguments_payload(value: Any) -> bytes:
    """The arguments of a struct, a map or a row as the JSON of a payload."""
    if value is None:
        return b"{}"
    return _CODEC.encode(plain(dict(value) if isinstance(value, list) else value))


def text_payload(text: str) -> bytes:
    try:
        check_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"payload is not JSON: {error}") from None
    return text.encode()


def key_text(values: tuple[Any, ...]) -> str | None:
    """The key of a row from its key columns; None when none of them has a value."""
    if all(value is None for value in values):
        return None
    if len(values) == 1:
        value = values[0]
        return value if isinstance(value, str) else _CODEC.encode(plain(value)).decode()
    return _CODEC.encode([plain(value) for value in values]).decode()


def plain(value: Any) -> Any:
    """The value as JSON has it: times as ISO 8601, decimals as text, bytes in base 64."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {str(name): plain(inner) for name, inner in value}  # how Arrow shows a map
        return [plain(inner) for inner in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()  # the same moment is the same text, whatever zone the session has
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def row_json(row: dict[str, Any]) -> str:
    """A refused row, whatever it holds, as strict JSON: NaN and the infinities, which JSON lacks, as texts."""
    text = json.dumps(_finite(plain(row)), ensure_ascii=False, allow_nan=False, default=str)
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value

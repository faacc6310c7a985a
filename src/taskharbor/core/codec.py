"""Payloads and results are bytes to a driver. The default codec makes those bytes JSON."""

from __future__ import annotations

import json
from typing import Final, Protocol

from taskharbor.core.errors import InvalidPayload
from taskharbor.core.model import JsonValue

# Made once: `json.dumps` makes one for each call that asks for anything but its defaults.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder()


class Codec(Protocol):
    """Turns values into bytes and back. Equal values must give equal bytes, so that duplicates are recognised."""

    def encode(self, value: JsonValue) -> bytes: ...

    def decode(self, data: bytes) -> JsonValue: ...


class JsonCodec:
    """Strict JSON in UTF-8 with sorted keys: no NaN, no lone surrogates, no keys but text."""

    def encode(self, value: JsonValue) -> bytes:
        try:
            _refuse_odd_keys(value)
            return _ENCODER.encode(value).encode()
        except UnicodeEncodeError as error:
            said = "text with a lone surrogate, which cannot be stored"
            found = error.object[error.start]
            raise InvalidPayload(f"{said}: remove {found!r}", unquoted=said) from None
        except (TypeError, ValueError) as error:
            use = "Use dict, list, str, int, finite float, bool or None"
            raise InvalidPayload(f"not JSON: {error}. {use}", unquoted=f"not JSON. {use}") from None
        except RecursionError:
            raise InvalidPayload.about("not JSON: nested too deeply, or contains itself") from None

    def decode(self, data: bytes) -> JsonValue:
        try:
            text = str(data, "utf-8")  # told, it need not guess the encoding
            try:
                value, end = _DECODER.raw_decode(text)
            except ValueError:
                end = -1
            # `json.loads` takes space around the value too, and takes three times as long to look for it.
            return value if end == len(text) else json.loads(text)
        except (ValueError, RecursionError) as error:
            said = "stored bytes are not JSON"
            raise InvalidPayload(f"{said}: {error}", unquoted=said) from None


def odd_key(key: object) -> InvalidPayload:
    kind = type(key).__name__
    return InvalidPayload(f"the key {key!r} is {kind}, not text", unquoted=f"a key is {kind}, not text")


def _refuse_odd_keys(value: JsonValue) -> None:
    """`json.dumps` would quietly write the key 1 as "1", and two keys could become one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise odd_key(key)
            _refuse_odd_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_odd_keys(inner)

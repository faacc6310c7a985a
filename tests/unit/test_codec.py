"""Payloads as JSON that every store and every reader accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.core.codec import JsonCodec
from taskharbor.core.errors import InvalidPayload

codec = JsonCodec()

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_what_is_encoded_decodes_to_the_same_value(value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


@given(json_values)
def test_what_is_encoded_is_json_in_utf_8_for_any_reader(value: Any) -> None:
    assert json.loads(codec.encode(value).decode("utf-8")) == value


def test_equal_values_give_equal_bytes_whatever_the_order_of_their_keys() -> None:
    assert codec.encode({"a": 1, "b": [2]}) == codec.encode({"b": [2], "a": 1}) == b'{"a":1,"b":[2]}'


def test_text_is_kept_as_text_and_not_escaped() -> None:
    assert codec.encode("Hafen ⚓") == '"Hafen ⚓"'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {"deep": [float("nan")]}])
def test_numbers_that_json_does_not_have_are_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        codec.encode(value)


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["ok", "\udc00"]])
def test_a_lone_surrogate_is_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload, match="surrogate"):
        codec.encode(value)


@pytest.mark.parametrize("value", [{1: "a"}, {None: 1}, {"a": [{True: 1}]}, ({2.5: 0},)])
def test_a_key_that_is_not_text_is_refused_instead_of_turned_into_text(value: Any) -> None:
    with pytest.raises(InvalidPayload, match="key"):
        codec.encode(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", lambda: None, 1j])
def test_a_value_that_is_not_json_is_refused_with_the_types_that_are(value: Any) -> None:
    with pytest.raises(InvalidPayload, match="dict, list, str"):
        codec.encode(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidPayload):
        codec.encode(loop)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"not json"])
def test_stored_bytes_that_are_not_json_are_an_error_of_ours(data: bytes) -> None:
    with pytest.raises(InvalidPayload):
        codec.decode(data)


def test_bytes_nested_too_deeply_are_an_error_and_not_a_crash() -> None:
    with pytest.raises(InvalidPayload):
        codec.decode(b"[" * 200_000)

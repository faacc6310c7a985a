"""The bounds that every store shares."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.core import limits
from taskharbor.core.errors import InvalidInput, InvalidLeaseDuration, PayloadTooLarge
from taskharbor.core.limits import Limits, check_duration, check_lease, check_name, check_text, clean_error


def test_the_payload_cap_is_one_mebibyte_unless_set() -> None:
    Limits().check_size(bytes(2**20), "payload")
    with pytest.raises(PayloadTooLarge, match=r"payload has 1,048,577 bytes, the limit is 1,048,576: store the data"):
        Limits().check_size(bytes(2**20 + 1), "payload")


def test_the_payload_cap_can_be_set() -> None:
    with pytest.raises(PayloadTooLarge):
        Limits(max_payload_bytes=3).check_size(b"four", "result")


@pytest.mark.parametrize("value", ["\x00", "a\x00b", "\ud800", "x\udfff"])
def test_text_that_some_store_cannot_keep_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="NUL or a lone surrogate"):
        check_text(value, "queue", 255)


@pytest.mark.parametrize("value", ["", "k", "K", "k ", "emoji ⚓", "\U0010ffff", "line\nbreak", "'; DROP TABLE x; --"])
def test_all_other_text_is_kept_as_it_is(value: str) -> None:
    assert check_text(value, "key", 255) == value


def test_text_may_be_as_long_as_the_limit_and_no_longer() -> None:
    assert check_text("x" * 64, "id", 64)
    with pytest.raises(InvalidInput, match="id has 65 characters, the limit is 64"):
        check_text("x" * 65, "id", 64)


@pytest.mark.parametrize("value", [None, 1, b"bytes", True])
def test_a_name_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="must be text"):
        check_name(value, "queue", 255)  # type: ignore[arg-type]


def test_a_name_must_not_be_empty() -> None:
    with pytest.raises(InvalidInput, match="must not be empty.* leave it out for the default"):
        check_name("", "queue", 255)
    with pytest.raises(InvalidInput, match="type must not be empty: give it a name$"):
        check_name("", "type", 255)  # which has no default


def test_error_text_is_mended_instead_of_refused() -> None:
    assert clean_error("bad\x00news\ud800") == "bad\ufffdnews\ufffd"


def test_long_error_text_keeps_its_beginning_and_its_end() -> None:
    mended = clean_error("first line\n" + "x" * 100_000 + "\nlast line")
    assert mended.startswith("first line\n")
    assert mended.endswith("\nlast line")
    assert "characters left out" in mended
    assert len(mended) <= limits.MAX_ERROR_CHARACTERS


@given(st.text(st.characters(codec=None), max_size=50), st.integers(0, 3_000))
def test_mended_error_text_can_always_be_stored(text: str, times: int) -> None:
    mended = clean_error(text * times)
    mended.encode()
    assert "\x00" not in mended
    assert len(mended) <= limits.MAX_ERROR_CHARACTERS


def test_a_lease_lasts_thirty_seconds_unless_said_otherwise() -> None:
    assert check_lease(None) == timedelta(seconds=30)


@pytest.mark.parametrize("value", [timedelta(seconds=2), 2, 2.0])
def test_a_lease_is_a_timedelta_or_seconds(value: timedelta | float) -> None:
    assert check_lease(value) == timedelta(seconds=2)


@pytest.mark.parametrize(
    "value",
    [0, -1, timedelta(0), -timedelta(seconds=1), float("nan"), float("inf"), 1e300, "30", timedelta.max, 1e-9, True],
)
def test_a_lease_that_is_no_positive_duration_is_refused(value: object) -> None:
    with pytest.raises(InvalidLeaseDuration):
        check_lease(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "soon", timedelta.max, None, True])
def test_a_duration_that_cannot_be_kept_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput):
        check_duration(value, "timeout")  # type: ignore[arg-type]


def test_a_duration_may_be_zero_and_at_most_ten_years() -> None:
    assert check_duration(0, "timeout") == timedelta(0)
    assert check_duration(limits.MAX_DURATION, "timeout") == limits.MAX_DURATION

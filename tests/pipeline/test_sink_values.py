"""Single values on their way from a row to a job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.pipeline.sink_values import are_json, check_json


def is_json(text: str) -> bool:
    try:
        check_json(text)
    except (ValueError, RecursionError):
        return False
    return True


@pytest.mark.parametrize(
    "texts",
    [
        ["{}", " [1] ", '"a"', "null", "1e5"],
        ["[1", "2]"],
        ['{"a":[{}', "{}]}", "{},{}"],
        ["1,2"],
        [""],
        ["1", ""],
        ["NaN"],
        ['"', '"'],
        ["[" * 100_000],
        ["{}"] * 1_200,
        ["{}"] * 1_199 + ["{"],
        [],
    ],
    ids=lambda texts: repr(texts)[:30],
)
def test_texts_are_json_when_each_of_them_is(texts: list[str]) -> None:
    assert are_json(texts) == all(map(is_json, texts))


@given(st.lists(st.text(alphabet='[]{},:"1a \\', max_size=6), max_size=6))
def test_no_mixture_of_texts_passes_for_json(texts: list[str]) -> None:
    assert are_json(texts) == all(map(is_json, texts))

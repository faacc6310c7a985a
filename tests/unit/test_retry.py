"""When a failed job runs again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor import Backoff
from taskharbor.core.errors import InvalidInput


def seconds(backoff: Backoff, failures: int) -> float:
    return backoff.delay(failures).total_seconds()


def highest(_low: float, high: float) -> float:
    return high


def lowest(low: float, _high: float) -> float:
    return low


def test_the_delay_doubles_with_every_failure_by_default() -> None:
    plain = Backoff(jitter="none")
    assert [seconds(plain, failures) for failures in (1, 2, 3, 4)] == [1, 2, 4, 8]


def test_the_delay_never_goes_above_the_cap() -> None:
    plain = Backoff(base=1, factor=3, cap=100, jitter="none")
    assert [seconds(plain, failures) for failures in (4, 5, 6, 7)] == [27, 81, 100, 100]


def test_the_default_cap_is_an_hour() -> None:
    assert Backoff(jitter="none").delay(40) == timedelta(hours=1)


@pytest.mark.parametrize("failures", [5_000, 2**63, 10**300])
def test_a_huge_count_of_failures_gives_the_cap_and_not_an_overflow(failures: int) -> None:
    assert Backoff(jitter="none").delay(failures) == timedelta(hours=1)


@pytest.mark.parametrize("failures", [-1, 0, 1])
def test_the_first_delay_is_the_base_whatever_the_caller_counts_from(failures: int) -> None:
    assert seconds(Backoff(base=7, jitter="none"), failures) == 7


def test_full_jitter_reaches_from_zero_to_the_delay() -> None:
    full = Backoff(base=10, jitter="full")
    assert full.delay(1, uniform=lowest) == timedelta(0)
    assert full.delay(1, uniform=highest) == timedelta(seconds=10)


def test_proportional_jitter_reaches_from_half_to_one_and_a_half_times_the_delay() -> None:
    proportional = Backoff(base=10, jitter="proportional")
    assert proportional.delay(1, uniform=lowest) == timedelta(seconds=5)
    assert proportional.delay(1, uniform=highest) == timedelta(seconds=15)


def test_proportional_jitter_does_not_lift_a_delay_above_the_cap() -> None:
    assert Backoff(base=10, cap=12, jitter="proportional").delay(1, uniform=highest) == timedelta(seconds=12)


def test_full_jitter_is_the_default() -> None:
    assert Backoff().jitter == "full"


@pytest.mark.parametrize("backoff", [Backoff(base=0), Backoff(cap=0)])
def test_a_base_or_cap_of_zero_means_no_delay(backoff: Backoff) -> None:
    assert backoff.delay(9) == timedelta(0)


def test_a_factor_of_one_keeps_the_delay_the_same() -> None:
    assert seconds(Backoff(base=3, factor=1, jitter="none"), 50) == 3


def test_a_base_above_the_cap_is_cut_to_the_cap() -> None:
    assert seconds(Backoff(base=100, cap=10, jitter="none"), 1) == 10


@pytest.mark.parametrize(
    "fields",
    [
        {"base": -1},
        {"base": float("nan")},
        {"cap": float("inf")},
        {"factor": 0.5},
        {"factor": float("inf")},
        {"jitter": "some"},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_made(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Backoff(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("base", [3e-304, 5e-324])
def test_a_base_next_to_nothing_grows_to_the_cap_and_does_not_overflow(base: float) -> None:
    tiny = Backoff(base=base, cap=3600, jitter="none")
    assert tiny.delay(1) == timedelta(0)
    assert tiny.delay(5_000) == timedelta(hours=1)


@given(
    base=st.floats(0, 1e6),
    factor=st.floats(1, 1e3),
    cap=st.floats(0, 1e7),
    jitter=st.sampled_from(["none", "proportional", "full"]),
    failures=st.integers(-5, 10**6),
)
def test_every_policy_gives_a_delay_from_zero_to_its_cap(
    base: float, factor: float, cap: float, jitter: str, failures: int
) -> None:
    delay = Backoff(base, factor, cap, jitter).delay(failures)  # type: ignore[arg-type]
    assert timedelta(0) <= delay <= timedelta(seconds=cap)

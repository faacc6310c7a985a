"""What kind of error it was, in plain Python. That Spark says the same is in tests/pipeline/test_silver.py."""

from __future__ import annotations

import time

import pytest

from taskharbor.core.fingerprints import error_class, fingerprint, fingerprint_of_dead, normalised

TRACE = 'Traceback (most recent call last):\n  File "/app/{}.py", line {}, in charge\n    raise CardError(x)\n'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user 17 not found", "user 99182 not found"),
        ("job 0191f3ab-77aa-7000-8000-0123456789ab is gone", "job ffffffff-0000-7000-8000-0123456789ab is gone"),
        ("object at 0x7f00aa", "object at 0x1"),
        ("no key 'ada' in table", "no key 'grace hopper' in table"),
        ("cannot reach https://a.example/x?y=1", "cannot reach https://b.example/z"),
        ("connect db.internal:5432 refused", "connect other.internal:1 refused"),
        ("cannot open /var/data/a.csv", "cannot open /tmp/x/y/z.csv"),
        (TRACE.format("pay", 3) + "shop.CardError: no '1'", TRACE.format("till", 44) + "shop.CardError: no '2'"),
    ],
)
def test_errors_that_differ_only_in_details_have_one_fingerprint(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


def test_errors_that_differ_in_words_have_two() -> None:
    texts = ["ValueError: bad", "TypeError: bad", "cannot open the door", "it isn't here and it won't be", "timed out"]
    assert len({fingerprint(each) for each in texts}) == len(texts)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TRACE.format("pay", 3) + "shop.errors.CardError: card declined", "CardError"),
        (TRACE.format("pay", 3) + "KeyboardInterrupt", "KeyboardInterrupt"),
        (TRACE.format("pay", 3) + "KeyboardInterrupt\r\n", "KeyboardInterrupt"),
        ("ValueError: 3 is odd", "ValueError"),
        ("timed out after 3 s", "Timeout"),
        ("no such card", "Error"),
        ("", None),
    ],
)
def test_the_class_of_an_error_is_what_was_raised_last(error: str, kind: str | None) -> None:
    assert error_class(error) == kind
    assert error_class(error, lapsed=True) == "Lapsed"


def test_a_normalised_error_can_still_be_read() -> None:
    assert (
        normalised("ValueError: user 17 has no file /a/b in 'x'") == "ValueError: user <n> has no file <path> in <text>"
    )


def test_a_job_that_died_without_a_word_has_the_fingerprint_of_its_code() -> None:
    assert fingerprint("") is None
    assert fingerprint_of_dead("", "no_handler") == fingerprint_of_dead("", "no_handler")
    assert fingerprint_of_dead("", "no_handler") != fingerprint_of_dead("", None)
    assert fingerprint_of_dead("E: no", "crash_loop") != fingerprint_of_dead("E: no", "max_attempts")


@pytest.mark.parametrize(
    "text",
    ["a" * 8_000, "a." * 4_000, "A." * 4_000, "/" * 8_000, "1-" * 4_000, "Traceback" + "\nA" * 4_000, "'" * 8_000],
)
def test_no_text_takes_long(text: str) -> None:
    began = time.perf_counter()
    fingerprint(text)
    assert time.perf_counter() - began < 1.0

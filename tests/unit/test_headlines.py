"""The one line of an error that says what went wrong."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial

import pytest

from taskharbor.core.headlines import headline
from taskharbor.core.limits import MAX_ERROR_CHARACTERS, clean_error


def told(raising: Callable[[], object]) -> str:
    try:
        raising()
    except BaseException as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("nothing was raised")


def throw(error: BaseException, cause: BaseException | None = None) -> None:
    if cause is None:
        raise error
    raise error from cause


def caught(error: Exception) -> Exception:
    try:
        raise error
    except Exception as same:
        return same


def noted(error: Exception) -> Exception:
    error.add_note("a note\nof two lines")
    return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError("the real cause is here\n  see also: somewhere\n  and more"), "ValueError: the real cause is here"),
        (ValueError("the cause\n\nDetails: at the margin"), "ValueError: the cause"),
        (ValueError("\nthe cause after a line break"), "ValueError: the cause after a line break"),
        (noted(ValueError("no")), "ValueError: no"),
        (KeyError(), "KeyError"),
        (ExceptionGroup("two\nthings", [caught(ValueError("a\nb")), TypeError("b")]), "ExceptionGroup: two"),
        (noted(ExceptionGroup("two", [ValueError("a")])), "ExceptionGroup: two (1 sub-exception)"),
        (ValueError("ours\n" + told(lambda: throw(KeyError("theirs")))), "ValueError: ours"),
        (SyntaxError("no", ("f.py", 1, 2, "a b")), "SyntaxError: no"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_a_traceback_it_is_the_line_with_which_the_text_of_the_exception_begins(error: Exception, line: str) -> None:
    for text in (told(lambda: throw(error)), "".join(traceback.format_exception(error.with_traceback(None)))):
        assert headline(text) == headline(text.strip()) == line
    for cause in (KeyError("first"), caught(KeyError("first\nof all")), caught(ExceptionGroup("g", [OSError("o")]))):
        assert headline(told(partial(throw, error, cause))) == line
        assert headline(told(lambda: throw(caught(RuntimeError("last\nof all")), error))) == "RuntimeError: last"


def test_of_any_other_text_it_is_the_first_line() -> None:
    assert headline("\n  first\nsecond") == "first"
    assert headline("timed out after 3 s") == "timed out after 3 s"
    assert headline("Error: no\n    at main (app.js:3:1)") == "Error: no"
    assert headline("a child failed:\n" + told(lambda: throw(KeyError("theirs")))) == "a child failed:"
    assert headline("") == headline(" \n ") == ""


def test_what_was_cut_for_its_length_is_still_found() -> None:
    def deep(levels: int) -> None:
        if not levels:
            raise ValueError("the cause\nand more")
        deeper(levels - 1)

    def deeper(levels: int) -> None:  # two by turns: of one that calls itself, a traceback shows three frames
        deep(levels)

    def long() -> None:
        raise ValueError("the cause\n" + "and more\n" * MAX_ERROR_CHARACTERS)

    for raising in (lambda: deep(100), long):
        text = clean_error(told(raising))
        assert "characters left out" in text
        assert headline(text) == "ValueError: the cause"
    assert headline(told(lambda: deep(100))[-400:]) == "ValueError: the cause"

"""A bad call fails where it is made, and says which argument of which task is wrong."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional
from uuid import UUID

import pydantic
import pytest

from taskharbor import Context, Harbor, InvalidArguments, InvalidInput, InvalidPayload, MissingExtra, Task

if TYPE_CHECKING:
    from somewhere import NotHere  # type: ignore[import-not-found]

either_way = pytest.mark.usefixtures("either_way")
MADE = UUID("0190b7a0-0000-7000-8000-000000000001")


class Colour(Enum):
    RED = "red"
    ONE = 1


class Line(pydantic.BaseModel):
    name: str
    count: int = 1


class Order(pydantic.BaseModel):
    lines: list[Line]
    at: datetime

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.lines)


@dataclasses.dataclass
class Point:
    x: int
    y: int


UserId = NewType("UserId", int)


def task_of(function: Callable[..., Any], name: str = "email.send") -> Task[..., Any]:
    return Harbor("memory://").task(name=name)(function)


def refusal(task: Task[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        task.new_job(*args, **kwargs)
    return str(caught.value)


def stored(task: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
    return json.loads(task.new_job(*args, **kwargs).payload)


def send(to: str, count: int = 1, *, urgent: bool = False) -> None: ...


# --- Which arguments -----------------------------------------------------------------------------------------


def test_a_wrong_type_is_named_with_its_task_argument_and_value() -> None:
    assert refusal(task_of(send), 5) == "email.send: argument 'to' must be str, got int 5"


def test_the_error_is_what_people_expect_of_a_bad_call_and_of_bad_input() -> None:
    for kind in (TypeError, ValueError, InvalidPayload):
        with pytest.raises(kind):
            task_of(send).new_job()


def test_missing_arguments_are_all_named() -> None:
    def move(a: int, b: int, c: int = 0) -> None: ...

    assert refusal(task_of(send)) == "email.send: missing argument 'to'"
    assert refusal(task_of(move, "move")) == "move: missing arguments 'a', 'b'"


def test_an_unexpected_argument_is_named_with_the_one_that_was_meant() -> None:
    message = refusal(task_of(send), to="a", cuont=2)
    assert message == "email.send: unexpected argument 'cuont': did you mean 'count'? It takes to, count, urgent"

    message = refusal(task_of(send), to="a", zzz=2)
    assert message == "email.send: unexpected argument 'zzz': it takes to, count, urgent"


def test_a_lone_surrogate_is_refused_in_one_sentence() -> None:
    message = refusal(task_of(send), to="a\ud800")
    assert message == (
        r"email.send: argument 'to' is text with a lone surrogate, which cannot be stored: remove '\ud800'"
    )


def test_positional_arguments_get_their_names() -> None:
    assert stored(task_of(send), "a", 2, urgent=True) == {"to": "a", "count": 2, "urgent": True}


def test_too_many_positional_arguments_are_refused() -> None:
    assert "takes 2 (to, count)" in refusal(task_of(send), "a", 1, True)


def test_an_argument_given_twice_is_refused() -> None:
    assert refusal(task_of(send), "a", to="b") == "email.send: argument 'to' was given twice, by place and by name"


def test_defaults_are_left_to_the_handler() -> None:
    assert stored(task_of(send), "a") == {"to": "a"}


def test_more_names_are_taken_where_the_function_takes_them() -> None:
    def log(event: str, **fields: int) -> None: ...

    task = task_of(log, "log")
    assert stored(task, "x", a=1) == {"event": "x", "a": 1}
    assert task.arguments(b'{"event":"x","a":1}') == {"event": "x", "a": 1}
    assert refusal(task, "x", a="1") == "log: argument 'a' must be int, got str '1'"


def test_context_is_no_argument() -> None:
    def work(n: int, *, context: Context) -> None: ...

    task = task_of(work, "work")
    assert task.wants_context
    assert stored(task, 1) == {"n": 1}
    assert "the worker gives it" in refusal(task, 1, context=None)


def test_an_annotation_of_context_that_type_checkers_alone_can_read_is_fine() -> None:
    def work(n: int, context: NotHere) -> None: ...

    assert task_of(work).wants_context


def test_a_parameter_called_context_cannot_be_something_else() -> None:
    def work(context: str) -> None: ...

    with pytest.raises(InvalidInput, match="rename yours"):
        task_of(work)


def _any_number(*args: int) -> None: ...


def _by_place_only(a: int, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (_any_number, "take a list"),
        (_by_place_only, "remove the /"),
        (pydantic.BaseModel.model_dump, "outside the class"),
    ],
)
def test_parameters_that_a_payload_cannot_fill_are_refused_with_a_cure(function: Any, cure: str) -> None:
    with pytest.raises(InvalidInput, match=cure):
        task_of(function)


# --- Which types ---------------------------------------------------------------------------------------------

RIGHT = [
    (str, "a"),
    (int, 5),
    (int, 2**70),
    (float, 1.5),
    (float, 5),
    (bool, True),
    (None, None),
    (list, [1, "a"]),
    (dict, {"a": 1}),
    (Any, {"a": [None]}),
    (object, 1),
    (Optional[int], None),  # noqa: UP045
    (int | str, "a"),
    (list[int], [1, 2]),
    (list[dict[str, int | None]], [{"a": 1, "b": None}]),
    (dict[str, list[str]], {"a": ["b"]}),
    (Sequence[int], [1]),
    (Mapping[str, int], {"a": 1}),
    (Literal["a", 1, None], 1),  # noqa: PYI061
    (Literal["a", 1] | None, 1),
    (UserId, 7),
    (Annotated[int, "how many"], 7),
]
WRONG = [
    (str, 5, "must be str, got int 5"),
    (int, "5", "must be int, got str '5'"),
    (int, True, "must be int, got bool True"),
    (int, 5.0, "must be int, got float 5.0"),
    (float, "5", "must be float, got str '5'"),
    (float, True, "must be float, got bool True"),
    (bool, 1, "must be bool, got int 1"),
    (str, None, "must be str, got None"),
    (list, (1,), "must be list, got tuple (1,)"),
    (dict, [], "must be dict, got list []"),
    (int | None, "a", "must be int or None, got str 'a'"),
    (Literal["a", 1], True, "must be 'a' or 1, got bool True"),
    (Literal["a"], [], "must be 'a', got list []"),
    (list[int], "ab", "must be list[int], got str 'ab'"),
]


def taking(annotation: Any) -> Callable[..., Any]:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return function


@either_way
@pytest.mark.parametrize(("annotation", "value"), RIGHT, ids=str)
def test_values_that_fit_are_stored_and_given_to_the_handler_as_they_are(annotation: Any, value: Any) -> None:
    task = task_of(taking(annotation))
    assert stored(task, value) == {"value": value}
    assert task.arguments(task.new_job(value).payload) == {"value": value}


@either_way
@pytest.mark.parametrize(("annotation", "value", "problem"), WRONG, ids=str)
def test_values_that_do_not_fit_are_refused_at_enqueue(annotation: Any, value: Any, problem: str) -> None:
    assert refusal(task_of(taking(annotation)), value) == f"email.send: argument 'value' {problem}"


@either_way
def test_what_is_wrong_inside_an_argument_is_found() -> None:
    numbers = task_of(taking(dict[str, list[int]]))
    assert refusal(numbers, {"a": [1, "x"]}) == "email.send: argument 'value['a'][1]' must be int, got str 'x'"
    maybe = task_of(taking(list[int] | None))
    assert refusal(maybe, [1, "x"]) == "email.send: argument 'value[1]' must be int, got str 'x'"
    keys = task_of(taking(dict[str, int]))
    assert "must have text for keys" in refusal(keys, {1: 1})


@either_way
@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (datetime, datetime(2026, 6, 1, 12, tzinfo=UTC), "2026-06-01T12:00:00+00:00"),
        (date, date(2026, 6, 1), "2026-06-01"),
        (UUID, MADE, str(MADE)),
        (Decimal, Decimal("1.10"), "1.10"),
        (Colour, Colour.RED, "red"),
        (Colour, Colour.ONE, 1),
        (Colour | None, None, None),
        (list[date], [date(2026, 6, 1)], ["2026-06-01"]),
        (str | date, date(2026, 6, 1), "2026-06-01"),
        (str | date, "soon", "soon"),
    ],
    ids=str,
)
def test_what_json_has_no_word_for_is_text_on_the_way_and_itself_for_the_handler(
    annotation: Any, value: Any, text: Any
) -> None:
    task = task_of(taking(annotation))
    assert stored(task, value) == {"value": text}
    assert task.arguments(json.dumps({"value": text}).encode()) == {"value": value}
    assert stored(task, text) == {"value": text}


@either_way
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, "noon"),
        (datetime, 5),
        (date, datetime(2026, 6, 1, tzinfo=UTC)),
        (UUID, "x"),
        (Decimal, "NaN"),
        (Decimal, "x"),
        (Colour, "blue"),
        (Colour, True),
        (Colour, []),
    ],
    ids=str,
)
def test_text_that_stands_for_nothing_is_refused(annotation: Any, value: Any) -> None:
    assert "argument 'value' must be" in refusal(task_of(taking(annotation)), value)


@either_way
def test_without_annotation_anything_that_json_can_hold_is_taken_and_nothing_else() -> None:
    def anything(value, other=None): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    task = task_of(anything)
    assert stored(task, [1, {"a": None}]) == {"value": [1, {"a": None}]}
    assert "argument 'other' is not JSON" in refusal(task, 1, datetime.now(UTC))
    assert "argument 'value' is not JSON" in refusal(task, float("nan"))
    assert refusal(task, {1: 2}).endswith(
        "argument 'value' is not JSON: the key 1 is int, not text. Use dict, list, str, int, finite float, bool or None"
    )


def test_a_default_of_none_allows_none() -> None:
    def work(a: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert stored(task_of(work), a=None) == {"a": None}


def test_an_annotation_may_name_what_is_defined_later() -> None:
    def work(value: Later) -> None: ...

    task = task_of(work)
    with pytest.raises(InvalidInput, match="'Later' is not defined"):
        task.new_job(1)
    globals()["Later"] = int
    try:
        assert stored(task, 1) == {"value": 1}
    finally:
        del globals()["Later"]


if TYPE_CHECKING:
    Later = int


# --- With pydantic -------------------------------------------------------------------------------------------


def test_a_model_is_stored_as_json_and_given_to_the_handler_as_a_model() -> None:
    task = task_of(taking(Order))
    order = Order(lines=[Line(name="tea")], at=datetime(2026, 6, 1, tzinfo=UTC))
    assert stored(task, order) == {"value": {"lines": [{"name": "tea", "count": 1}], "at": "2026-06-01T00:00:00Z"}}
    assert task.arguments(task.new_job(order).payload) == {"value": order}


def test_a_model_may_be_given_as_json_and_what_is_wrong_inside_is_named() -> None:
    task = task_of(taking(Order | None))
    assert stored(task, {"lines": [], "at": "2026-06-01T00:00:00Z"}) == {
        "value": {"lines": [], "at": "2026-06-01T00:00:00Z"}
    }
    task = task_of(taking(Line))
    assert refusal(task, {"name": "tea", "count": "5"}) == (
        "email.send: argument 'value.count' is not valid: Input should be a valid integer, got str '5'"
    )
    assert "argument 'value.name' is not valid: Field required" in refusal(task, {})


def test_dataclasses_tuples_and_constraints_are_pydantics_business() -> None:
    assert stored(task_of(taking(Point)), Point(1, 2)) == {"value": {"x": 1, "y": 2}}
    assert task_of(taking(Point)).arguments(b'{"value":{"x":1,"y":2}}') == {"value": Point(1, 2)}
    assert task_of(taking(tuple[int, str])).arguments(b'{"value":[1,"a"]}') == {"value": (1, "a")}
    positive = task_of(taking(Annotated[int, pydantic.Field(gt=0)]))
    assert stored(positive, 1) == {"value": 1}
    assert "greater than 0" in refusal(positive, -1)
    assert "must be Line" in refusal(task_of(taking(Line)), object())


def test_a_class_that_nobody_can_read_again_is_refused_at_definition() -> None:
    class Socket: ...

    with pytest.raises(InvalidInput, match="email.send: argument 'value' is annotated Socket"):
        task_of(taking(Socket))


@pytest.mark.usefixtures("without_pydantic")
@pytest.mark.parametrize("annotation", [Line, Point, tuple[int, str], dict[int, str], Annotated[int, object()]])
def test_without_pydantic_other_annotations_name_the_extra_at_definition(annotation: Any) -> None:
    with pytest.raises(MissingExtra, match=r"argument 'value' .*pip install 'taskharbor\[pydantic\]'"):
        task_of(taking(annotation))


# --- At run --------------------------------------------------------------------------------------------------


@either_way
@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"[]", "the payload must be a JSON object"),
        (b"{", "not JSON"),
        (b"{}", "missing argument 'to'"),
        (b'{"to":5}', "argument 'to' must be str, got int$"),
        (b'{"to":"a","x":1}', "unexpected argument 'x'"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_at_run_without_showing_its_values(payload: bytes, problem: str) -> None:
    with pytest.raises(InvalidPayload, match=problem):
        task_of(send).arguments(payload)


def test_no_payload_is_no_arguments() -> None:
    task = task_of(lambda: None)
    assert task.arguments(b"") == task.arguments(b"{}") == {}


# --- Results -------------------------------------------------------------------------------------------------


@either_way
@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        ({"a": [1, 2.5, True, None, "x"]}, {"a": [1, 2.5, True, None, "x"]}),
        ((1, 2), [1, 2]),
        (MADE, str(MADE)),
        (date(2026, 6, 1), "2026-06-01"),
        ({"at": Decimal("1.5")}, {"at": "1.5"}),
        (Point(1, 2), {"x": 1, "y": 2}),
        ([Colour.RED], ["red"]),
        ({1}, [1]),
    ],
    ids=str,
)
def test_results_are_kept_as_json(value: Any, kept: Any) -> None:
    encoded = task_of(send).encode_result(value)
    assert kept is None if encoded is None else json.loads(encoded) == kept


def test_a_model_may_be_a_result() -> None:
    assert task_of(send).encode_result(Line(name="tea")) == b'{"count":1,"name":"tea"}'


@either_way
@pytest.mark.parametrize(
    "value", [object(), float("nan"), {"a": float("inf")}, {1: 2}, [{"a": ({MADE: 1},)}], Point({1: 2}, 0)]
)
def test_a_result_that_cannot_be_kept_is_said_to_be_so(value: Any) -> None:
    with pytest.raises(InvalidPayload, match="email.send: its result"):
        task_of(send).encode_result(value)

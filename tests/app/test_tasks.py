"""What a task is, and what is refused where it is defined."""

from __future__ import annotations

import functools
import pickle
import types
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Backoff, Harbor, InvalidInput, Task

harbor_of_module = Harbor("memory://")


@harbor_of_module.task
def at_the_top(n: int) -> int:
    """Doubles."""
    return 2 * n


@pytest.fixture
def harbor() -> Harbor:
    return Harbor("memory://")


def test_a_task_is_still_its_function() -> None:
    assert at_the_top(4) == 8
    assert (at_the_top.__name__, at_the_top.__doc__) == ("at_the_top", "Doubles.")


async def _answer(n: int) -> int:
    return n


@pytest.mark.parametrize(("function", "pool"), [(_answer, "async"), (lambda n: n, "thread")])
def test_async_functions_go_to_the_loop_and_others_to_threads(harbor: Harbor, function: Any, pool: str) -> None:
    assert harbor.task(name="t")(function).pool == pool


def test_a_bare_task_has_the_functions_name_and_the_harbors_defaults() -> None:
    harbor = Harbor("memory://", queue="slow", max_attempts=7, tenant="acme", timeout=9)

    @harbor.task
    def send(to: str) -> None: ...

    assert isinstance(send, Task)
    assert (send.name, send.queue, send.max_attempts, send.priority) == ("send", "slow", 7, 0)
    assert (send.timeout, send.retry, send.unique) == (timedelta(seconds=9), None, ("tenant", "type"))
    assert send.new_job(to="a").tenant_id == "acme"
    assert harbor.tasks == {"send": send}


def test_the_options_of_a_task_win_over_the_harbors() -> None:
    harbor = Harbor("memory://", queue="slow", max_attempts=7, timeout=9)

    @harbor.task(
        name="email.send",
        queue="mail",
        priority=5,
        max_attempts=3,
        timeout=timedelta(minutes=1),
        retry=Backoff(base=2),
        unique=("tenant",),
        pool="thread",
    )
    def send(to: str) -> None: ...

    assert (send.name, send.queue, send.priority, send.max_attempts) == ("email.send", "mail", 5, 3)
    assert (send.timeout, send.retry, send.unique, send.pool) == (
        timedelta(minutes=1),
        Backoff(base=2),
        ("tenant",),
        "thread",
    )


def test_no_retries_are_one_attempt(harbor: Harbor) -> None:
    once = harbor.task(name="once", max_retries=0)(lambda: None)
    often = harbor.task(name="often", max_attempts=4)(lambda: None)
    assert once.max_attempts == 1
    jobs = [once.enqueue(), often.using(max_retries=0).enqueue(), harbor.enqueue("elsewhere", max_retries=0)]
    assert [harbor.job(job).max_attempts for job in jobs] == [1, 1, 1]


def test_no_attempts_are_refused_where_they_are_written(harbor: Harbor) -> None:
    task = harbor.task(name="t")(lambda: None)
    for write in (
        lambda: harbor.task(name="u", max_attempts=0)(lambda: None),
        lambda: task.using(max_attempts=0),
        lambda: harbor.enqueue("elsewhere", max_attempts=0),
        lambda: Harbor("memory://", max_attempts=0),
        lambda: harbor.periodic("@every 1m", max_attempts=0)(task),
    ):
        with pytest.raises(InvalidInput, match="give 1 for no retry, or leave it out"):
            write()


def test_max_retries_is_another_name_for_max_attempts(harbor: Harbor) -> None:
    assert harbor.task(name="t", max_retries=3)(lambda: None).max_attempts == 3


def test_two_functions_cannot_have_one_name(harbor: Harbor) -> None:
    harbor.task(name="send")(_answer)
    with pytest.raises(InvalidInput, match=r"there is a task 'send' already, .*_answer: give .*another name"):
        harbor.task(name="send")(at_the_top.function)


def test_a_module_that_is_read_again_replaces_its_tasks(harbor: Harbor) -> None:
    source = "def send(to: str) -> None: ...\n"
    tasks = []
    for name in ("app", "app", "__main__"):  # reloaded, then run as a script
        module = types.ModuleType(name)
        exec(compile(source, "app.py", "exec"), module.__dict__)
        tasks.append(harbor.task(module.send))
    assert harbor.tasks["send"] is tasks[-1]


def test_a_task_can_be_sent_to_another_process_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(at_the_top)) is at_the_top


def test_making_a_task_of_a_task_changes_nothing_and_cannot_give_it_options(harbor: Harbor) -> None:
    task = harbor.task(name="t")(_answer)
    assert harbor.task(task) is task
    with pytest.raises(InvalidInput, match="give the options once"):
        harbor.task(queue="mail")(task)


def _generator() -> Any:
    yield 1


async def _async_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (_answer, {"pool": "process"}, "run on an event loop"),
        (lambda: None, {"pool": "async"}, "is for async functions"),
        (lambda: None, {"pool": "gpu"}, "pool must be one of"),
        (lambda: None, {"retry": 5}, "retry takes a Backoff"),
        (lambda: None, {"priority": "high"}, "t: priority must be"),
        (lambda: None, {"max_attempts": -1}, "t: max_attempts must be"),
        (lambda: None, {"queue": ""}, "t: queue must not be empty"),
        (lambda: None, {"unique": ("kind",)}, "t: unique takes"),
        (lambda: None, {"timeout": "soon"}, "timeout must be"),
        (lambda: None, {"colour": "red"}, "unknown option 'colour': known are"),
        (lambda: None, {"quue": "mail"}, "unknown option 'quue': did you mean 'queue'"),
        (lambda: None, {"delay": 5}, "delay belongs to one job"),
        (lambda: None, {"connection": object()}, "connection belongs to one job"),
        (lambda: None, {"id": "1"}, "id belongs to one job"),
        (lambda: None, {"key": "k"}, r"key belongs to one job, .*task\.using\(key="),
        (lambda: None, {"max_attempts": 1, "max_retries": 2}, "give one of them"),
        (_generator, {}, "is a generator"),
        (_async_generator, {}, "is a generator"),
        (5, {}, "made of a function"),
    ],
)
def test_options_that_cannot_be_are_refused_at_definition(
    harbor: Harbor, function: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        harbor.task(name="t", **options)(function)
    assert not harbor.tasks


def test_a_process_cannot_import_a_function_inside_another(harbor: Harbor) -> None:
    def nested() -> None: ...

    with pytest.raises(InvalidInput, match="at the top of a module.*move .*nested there"):
        harbor.task(pool="process")(nested)
    assert harbor.task(name="t", pool="process")(at_the_top.function).pool == "process"


def _at_module_level() -> Any:
    function = lambda: 1  # noqa: E731 - as it is called at the top of a module
    function.__qualname__ = "<lambda>"
    return function


@pytest.mark.parametrize("function", [_at_module_level(), functools.partial(at_the_top.function, 1)])
def test_a_process_cannot_import_what_has_no_name(harbor: Harbor, function: Any) -> None:
    with pytest.raises(InvalidInput, match="at the top of a module.*write one there with def"):
        harbor.task(name="nameless", pool="process")(function)


def test_a_function_without_a_name_needs_one(harbor: Harbor) -> None:
    with pytest.raises(InvalidInput, match="give the task one"):
        harbor.task(lambda: None)
    with pytest.raises(InvalidInput, match=r"harbor\.task\(name='send'\)"):
        harbor.task("send")  # type: ignore[call-overload]


def test_partials_and_callable_objects_can_be_tasks(harbor: Harbor) -> None:
    class Greeter:
        async def __call__(self, name: str) -> str:
            return f"hello {name}"

    assert harbor.task(name="greet")(Greeter()).pool == "async"
    doubled = harbor.task(name="doubled")(functools.partial(at_the_top.function, n=2))
    assert doubled.arguments(b"{}") == {}


def test_a_harbors_own_defaults_are_checked_too() -> None:
    with pytest.raises(InvalidInput, match="harbor: max_attempts"):
        Harbor("memory://", max_attempts=-5)
    with pytest.raises(InvalidInput, match="retry takes a Backoff"):
        Harbor("memory://", retry=5)  # type: ignore[arg-type]


def test_reprs_name_the_task_and_nothing_secret(harbor: Harbor) -> None:
    task = harbor.task(name="t")(_answer)
    assert repr(task) == "Task('t', queue='default')"
    assert repr(task.using(key="secret")) == "Call('t')"

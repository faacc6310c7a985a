"""Workflows as applications write them: chains, groups, chords, and graphs of named steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Never

from taskharbor.app.placeholders import PREVIOUS, RESULTS, Placeholder, holds_placeholder, part_results, step_result
from taskharbor.core.errors import InvalidInput
from taskharbor.core.ids import new_id
from taskharbor.core.limits import MAX_NAME, check_name
from taskharbor.core.model import NewJob
from taskharbor.core.workflow import NewStep, NewWorkflow, Policy, compensation_id

if TYPE_CHECKING:
    from taskharbor.app.harbor import Harbor
    from taskharbor.app.options import Terms
    from taskharbor.app.task import Task

CHILDREN: Final = "children"


class Signature:
    """A call of a task that is to be made later, as a step: what `task.s(…)` gives."""

    def __init__(self, task: Task[..., Any], terms: Terms, positional: Sequence[Any], named: Mapping[str, Any]) -> None:
        self.task = task
        self._terms = terms
        self._positional = tuple(positional)
        self._named = dict(named)

    def filled(self, replacements: Mapping[Placeholder, Placeholder]) -> Signature:
        """The same call, with placeholders in the place of those that only make sense somewhere else."""
        positional = [_replaced(value, replacements) for value in self._positional]
        named = {name: _replaced(value, replacements) for name, value in self._named.items()}
        return Signature(self.task, self._terms, positional, named)

    def placeholders(self) -> Iterator[Placeholder]:
        return (value for value in self._values() if isinstance(value, Placeholder))

    def steps_as_arguments(self) -> Iterator[StepRef | GroupRef]:
        """What was probably meant to be the result of these."""
        return (value for value in self._values() if isinstance(value, StepRef | GroupRef))

    def _values(self) -> Iterator[Any]:
        """What the arguments are, and what they hold."""
        return _inner((self._positional, self._named))

    def new_job(self, step: str) -> NewJob:
        """The job of a step, with its arguments checked as far as they are known."""
        task = self.task
        if self._terms.unique is not None and self._terms.fields.get("idempotency_key") is None:
            rule = "unique" if self._terms.pace is None else self._terms.pace.option
            raise InvalidInput(
                f"step {step!r}: {task.name} has {rule}=…, and a step always runs, whatever jobs there are beside it: "
                f"leave the rule out for the step, {task.name}.using(unique=None).s(…)"
            )
        payload = (
            task.payload_with_placeholders(self._positional, self._named)
            if any(map(holds_placeholder, (*self._positional, *self._named.values())))
            else task._payload(self._positional, self._named)
        )
        return self._terms.new_job(task.name, payload, task._harbor.now)

    def __repr__(self) -> str:
        return f"{self.task.name}.s(…)"


def _replaced(value: Any, replacements: Mapping[Placeholder, Placeholder]) -> Any:
    if isinstance(value, Placeholder):
        return replacements.get(value, value)
    if isinstance(value, list | tuple):
        return [_replaced(each, replacements) for each in value]
    if isinstance(value, Mapping):
        return {key: _replaced(each, replacements) for key, each in value.items()}
    return value


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _inner(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _inner(each)
    else:
        yield value


@dataclass(frozen=True, slots=True)
class StepRef:
    """A step of a workflow that is being written."""

    flow: Workflow
    number: int
    name: str

    @property
    def result(self) -> Placeholder:
        """What the step will return, as an argument for a later one."""
        return step_result(self.flow, self.number, self.name)


@dataclass(frozen=True, slots=True)
class GroupRef:
    """Many steps that run side by side."""

    flow: Workflow
    name: str
    numbers: range

    @property
    def results(self) -> Placeholder:
        """A list of what they will return, in their order; None for those that have failed."""
        return part_results(self.flow, self.name, self.numbers)


After = StepRef | GroupRef | str | Iterable[StepRef | GroupRef | str]
"""What a step comes after: steps and groups, or their names; one or several."""


class Workflow:
    """Steps, and what comes after what. Nothing is stored before `harbor.start(flow)`.

    `on_failure` says what a step that fails for good does: "fail" stops the others, "continue" lets what comes after it
    run all the same, and a call, `undo.s()`, does as "fail" and then runs that once nothing else of the workflow runs.
    """

    def __init__(self, name: str, *, on_failure: str | Signature = "fail", tenant: str | None = None) -> None:
        self.name = check_name(name, "the name of a workflow", MAX_NAME)
        if not isinstance(on_failure, Signature) and on_failure not in ("fail", "continue"):
            raise InvalidInput(
                f"on_failure takes 'fail', 'continue', or a call of a task such as undo.s(), got {on_failure!r}"
            )
        if isinstance(on_failure, Signature) and next(on_failure.placeholders(), None) is not None:
            raise InvalidInput(
                f"on_failure={on_failure!r} takes the result of a step: it runs when steps have failed. Ask for what "
                "is there in the handler: harbor.workflow(context.workflow).steps()"
            )
        self._on_failure = on_failure
        self._tenant = tenant
        self._steps: list[tuple[str, Signature, tuple[int, ...], str]] = []
        self._names: dict[str, range] = {}

    def step(self, name: str, call: Signature | Task[..., Any], *, after: After = ()) -> StepRef:
        """Add a step: `flow.step("clean", clean.s(rows=extract.result))`. It runs after the steps whose results it is
        given, and after those of `after`: what `step` and `group` gave back, or the names of these."""
        if name in self._names:
            raise InvalidInput(f"workflow {self.name!r} has a step {name!r} already: give each a name of its own")
        number = len(self._steps)
        signature = _signature(call)
        self._steps.append((name, signature, self._before(name, signature, after), ""))
        self._names[name] = range(number, number + 1)
        return StepRef(self, number, name)

    def group(self, name: str, calls: Iterable[Signature | Task[..., Any]], *, after: After = ()) -> GroupRef:
        """Add any number of steps that run side by side."""
        check_name(name, "the name of a group", MAX_NAME)
        if name in self._names:
            raise InvalidInput(f"workflow {self.name!r} has {name!r} already: give each a name of its own")
        first = len(self._steps)
        shared = _several(after)
        for place, call in enumerate(_calls(calls)):
            signature = _signature(call)
            before = self._before(name, signature, shared)
            self._steps.append((f"{name}[{place}]", signature, before, name))
        if len(self._steps) == first:
            raise InvalidInput(f"group {name!r} has no steps: give it at least one")
        self._names[name] = range(first, len(self._steps))
        return GroupRef(self, name, self._names[name])

    def _before(self, name: str, signature: Signature, after: After) -> tuple[int, ...]:
        numbers: set[int] = set()
        for each in _several(after):
            numbers.update(self._numbers_of(name, each))
        for whole in signature.steps_as_arguments():
            right = "step.result" if isinstance(whole, StepRef) else "group.results"
            raise InvalidInput(
                f"step {name!r} is given {whole.name!r} itself as an argument, and not what it returns: give {right}"
            )
        for placeholder in signature.placeholders():
            if placeholder in (PREVIOUS, RESULTS):
                where = "a chain, behind its first step," if placeholder is PREVIOUS else "the last step of a chord"
                raise InvalidInput(f"step {name!r}: {placeholder!r} makes sense in {where} only: give step.result")
            if placeholder.owner is not self:
                raise InvalidInput(f"step {name!r} takes {placeholder!r}, which is none of workflow {self.name!r}")
            numbers.update(placeholder.numbers)
        return tuple(sorted(numbers))

    def _numbers_of(self, name: str, before: object) -> Iterable[int]:
        if isinstance(before, str) and before in self._names:
            return self._names[before]
        if isinstance(before, StepRef | GroupRef) and before.flow is self:
            return [before.number] if isinstance(before, StepRef) else before.numbers
        said = before if isinstance(before, str) else getattr(before, "name", type(before).__name__)
        raise InvalidInput(
            f"step {name!r} comes after {said!r}, which is no step of workflow {self.name!r} so far: add that one "
            "first, and give what flow.step() returned, or its name. Two steps cannot come after each other"
        )

    def plan(self, harbor: Harbor) -> NewWorkflow:
        """Everything that is stored, checked; encrypted where the harbor encrypts."""
        jobs = [signature.new_job(name) for name, signature, _, _ in self._steps]
        tenant = self._tenant or (jobs[0].tenant_id if jobs else str(harbor._terms.fields["tenant_id"]))
        id: str | None = None
        compensation = None
        policy = Policy.COMPENSATE
        if isinstance(self._on_failure, Signature):
            compensation = self._on_failure.new_job("compensation")._replace(tenant_id=tenant)
            if harbor.encryption is not None:
                id = new_id()  # what is encrypted is bound to the id of its job, which is made of this one
                sealed = harbor.encryption.seal_job(compensation._replace(id=compensation_id(id)))
                compensation = sealed._replace(id=None)
        else:
            policy = Policy(self._on_failure)
        if self._tenant is not None:
            jobs = [job._replace(tenant_id=tenant) for job in jobs]
        if harbor.encryption is not None:
            jobs = [harbor.encryption.seal_job(job) for job in jobs]
        steps = [NewStep(name, job, after, part) for (name, _, after, part), job in zip(self._steps, jobs, strict=True)]
        return NewWorkflow(self.name, steps, policy, compensation, tenant, id)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self._steps):,} steps)"


def chain(*calls: Signature | Task[..., Any], name: str = "chain", on_failure: str | Signature = "fail") -> Workflow:
    """One step after the other. `PREVIOUS` as an argument is what the step before it returned."""
    flow = Workflow(name, on_failure=on_failure)
    last: StepRef | None = None
    for place, call in enumerate(calls, 1):
        signature = _signature(call)
        if last is not None:
            signature = signature.filled({PREVIOUS: last.result})
        last = flow.step(f"{place}-{signature.task.name}", signature, after=[last] if last else [])
    return flow


def group(
    calls: Iterable[Signature | Task[..., Any]],
    *others: Never,
    name: str = "group",
    on_failure: str | Signature = "fail",
) -> Workflow:
    """Any number of steps side by side, given as one list."""
    _refuse_others("group([a.s(), b.s()])", others)
    flow = Workflow(name, on_failure=on_failure)
    flow.group(CHILDREN, calls)
    return flow


def chord(
    calls: Iterable[Signature | Task[..., Any]],
    finalizer: Signature | Task[..., Any],
    *others: Never,
    name: str = "chord",
    on_failure: str | Signature = "fail",
) -> Workflow:
    """Any number of steps side by side, and one after all of them, exactly once. `RESULTS` as an argument of that one
    is the list of what the others returned."""
    _refuse_others("chord([a.s(), b.s()], last.s(…))", others)
    flow = Workflow(name, on_failure=on_failure)
    children = flow.group(CHILDREN, calls)
    last = _signature(finalizer).filled({RESULTS: children.results})
    flow.step("finalizer", last, after=[children])
    return flow


def _refuse_others(right: str, others: tuple[object, ...]) -> None:
    """`chain` takes its calls one by one, and these take a list: whoever mixes them up is told."""
    if others:
        raise InvalidInput(f"the calls that run side by side are one list: write {right}")


def _several(after: After) -> tuple[StepRef | GroupRef | str, ...]:
    return (after,) if isinstance(after, StepRef | GroupRef | str) else tuple(after)


def _calls(calls: object) -> Iterable[Any]:
    if isinstance(calls, Iterable) and not isinstance(calls, str | bytes):
        return calls
    raise InvalidInput(f"a group takes a list of calls, such as [send.s(to='ada')], got {type(calls).__name__}")


def _signature(call: Signature | Task[..., Any]) -> Signature:
    from taskharbor.app.task import Call, Task

    if isinstance(call, Signature):
        return call
    if isinstance(call, Task | Call):
        return call.s()
    if isinstance(call, Workflow):
        raise InvalidInput(
            f"{call!r} is a workflow, and a step is a call of a task: write all of it as one flow = Workflow(…), with "
            "flow.group(…) for what runs side by side and flow.step(…, after=…) for what follows"
        )
    raise InvalidInput(f"a step is a call of a task, such as send.s(to='ada'), got {type(call).__name__}")

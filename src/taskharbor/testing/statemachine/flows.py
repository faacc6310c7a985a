"""Workflows in the state machine: started, worked on by the other rules, cancelled, redriven whole or step by step."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from taskharbor.core.model import HELD, JobFilter, NewJob
from taskharbor.core.workflow import NewStep, NewWorkflow, Policy, StepState
from taskharbor.testing.statemachine import strategies as draw
from taskharbor.testing.statemachine.governing import GoverningRules
from taskharbor.testing.statemachine.pair import Side

MOST_FLOWS: Final = 3
SHAPES: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "chain": ((), (0,), (1,)),
    "chord": ((), (), (0, 1)),
    "diamond": ((), (0,), (0,), (1, 2)),
    "one": ((),),
    "apart": ((), (), (0,)),
}
"""What each step waits for."""


class FlowRules(GoverningRules):
    ids: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.flows: list[str] = []

    @precondition(lambda self: len(self.flows) < MOST_FLOWS)
    @rule(
        shape=st.sampled_from(sorted(SHAPES)),
        policy=st.sampled_from(Policy),
        queue=draw.queues,
        type=st.sampled_from(draw.TYPES),
        max_attempts=st.sampled_from([1, 2]),
        run_in=draw.ahead(None, None, 5),
    )
    def start_workflow(
        self, shape: str, policy: Policy, queue: str, type: str, max_attempts: int, run_in: timedelta | None
    ) -> None:
        id = f"flow-{len(self.flows)}"
        run_at = None if run_in is None else self.now + run_in
        job = NewJob(type, b"1", queue, max_attempts=max_attempts)
        steps = [
            NewStep(f"step {number}", job._replace(id=f"{id}-{number}", run_at=None if after else run_at), after, shape)
            for number, after in enumerate(SHAPES[shape])
        ]
        undo = NewJob(type, b"undo", queue, max_attempts=1) if policy is Policy.COMPENSATE else None
        self.flows.append(id)
        self.ids.extend([*(step.job.id or "" for step in steps), f"{id}-undo"])
        self.pair.same(
            lambda side: side.driver.start_workflow(NewWorkflow(shape, steps, policy, undo, id=id), now=self.now)
        )

    @precondition(lambda self: self.flows)
    @rule(pick=draw.picks, change=st.sampled_from(["redrive", "redrive", "cancel"]))
    def change_workflow(self, pick: int, change: str) -> None:
        id = self.flows[pick % len(self.flows)] if pick < draw.NOBODY else "nobody"

        def call(side: Side) -> Any:
            if change == "cancel":
                return side.driver.cancel_workflow(id, now=self.now)
            return side.driver.redrive_workflow(id, now=self.now)

        self.pair.same(call)

    @precondition(lambda self: self.flows)
    @rule(pick=draw.picks, numbers=st.sets(st.sampled_from(["0", "1", "2", "undo"]), min_size=1))
    def redrive_steps(self, pick: int, numbers: set[str]) -> None:
        ids = [f"{self.flows[pick % len(self.flows)]}-{number}" for number in sorted(numbers)]
        self.pair.same(lambda side: sorted(side.driver.redrive(JobFilter(ids=ids), now=self.now)))

    @precondition(lambda self: self.flows)
    @rule()
    def look_at_workflows(self) -> None:
        self.every_workflow_is_the_same()

    def every_workflow_is_the_same(self) -> None:
        self.pair.same(lambda side: side.driver.list_workflows())
        for flow in self.flows:
            self.one_workflow_is_the_same(flow)

    def one_workflow_is_the_same(self, flow: str) -> None:
        self.pair.same(lambda side: side.driver.workflow_steps(flow))
        self.pair.same(lambda side: side.driver.step_results(flow))
        self.pair.same(lambda side: sorted(side.driver.workflow_edges(flow)))

    @invariant()
    def no_step_runs_before_those_it_waits_for(self) -> None:
        for job in self.jobs():
            if job.lease_token is not None:
                assert job.due_at < HELD, f"{job.id} waits for others and is leased"

    @invariant()
    def every_step_waits_for_those_before_it_that_have_not_ended(self) -> None:
        driver = self.pair.memory.driver  # the other one is compared with it
        for flow in driver.list_workflows() if self.flows else ():
            ended = {StepState.DONE, StepState.FAILED} if flow.policy is Policy.CONTINUE else {StepState.DONE}
            steps = {step.number: step for step in driver.workflow_steps(flow.id)}
            causes = Counter(
                after for before, after in driver.workflow_edges(flow.id) if steps[before].state not in ended
            )
            for number, step in steps.items():
                assert step.waiting == causes[number], f"{flow.id} {step.name} waits for {step.waiting}"

    def nothing_is_stuck(self) -> None:
        driver: Any = self.driver
        for id in self.flows:
            if any(flow.id == id for flow in driver.list_workflows()):
                driver.cancel_workflow(id, now=self.now)
        super().nothing_is_stuck()

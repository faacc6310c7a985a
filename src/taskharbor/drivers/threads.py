"""The part of the in-process engine's data that workflows need, with what makes it quick to ask."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from taskharbor.core.workflow import StepState, Workflow
from taskharbor.drivers.flowing import StepRow

TABLES: Final = ("workflows", "steps", "edges")


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A workflow, and the job that is to compensate it, as text, as long as it has not been enqueued."""

    flow: Workflow
    compensation: str | None = None


class Threads:
    """Workflows, their steps, and which wait for which."""

    def __init__(self) -> None:
        self.workflows: dict[str, FlowRecord] = {}
        self.steps: dict[tuple[str, int], StepRow] = {}
        self.edges: dict[tuple[str, int], tuple[int, ...]] = {}
        # Derived.
        self.step_of: dict[str, tuple[str, int]] = {}
        self.numbers_of: dict[str, set[int]] = defaultdict(set)
        self.steps_in: dict[tuple[str, StepState], set[int]] = defaultdict(set)
        self._states: dict[tuple[str, int], StepState] = {}

    def step_was_put(self, key: tuple[str, int], step: StepRow) -> None:
        id, number = key
        self._leave(key)
        self.step_of[step.job_id] = key
        self.numbers_of[id].add(number)
        self.steps_in[id, step.state].add(number)
        self._states[key] = step.state

    def step_was_dropped(self, key: tuple[str, int], step: Any) -> None:
        self._leave(key)
        self._states.pop(key, None)
        self.step_of.pop(step.job_id, None)
        self.numbers_of[key[0]].discard(key[1])
        if not self.numbers_of[key[0]]:
            del self.numbers_of[key[0]]

    def _leave(self, key: tuple[str, int]) -> None:
        known = self._states.get(key)
        if known is not None:
            numbers = self.steps_in[key[0], known]
            numbers.discard(key[1])
            if not numbers:
                del self.steps_in[key[0], known]

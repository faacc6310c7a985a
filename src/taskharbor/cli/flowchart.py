"""A workflow as text: steps from top to bottom in the order in which they may run, many of a kind as one line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from taskharbor.cli.output import has_rich, in_one_line
from taskharbor.core.model import Status
from taskharbor.core.workflow import Step, StepCounts, StepState

_SIGNS: Final = {
    StepState.WAITING: "·",
    StepState.HELD: "‖",
    StepState.OPEN: "▶",
    StepState.DONE: "✔",
    StepState.FAILED: "✘",
    StepState.CANCELLED: "-",
}
_COLOURS: Final = {
    StepState.OPEN: "36",
    StepState.HELD: "33",
    StepState.DONE: "32",
    StepState.FAILED: "31",
    StepState.CANCELLED: "90",
    StepState.WAITING: "90",
}
_BAR: Final = 20


class Node(NamedTuple):
    """A step, or all steps of a part."""

    name: str
    states: Mapping[StepState, int]
    job_id: str | None
    lost: Status | None = None
    """How the job of a step has ended whose turn has not come."""


def drawn(steps: Sequence[Step], edges: Sequence[tuple[int, int]], counts: Sequence[StepCounts]) -> str:
    """One line for each step and each part, indented by how many must end before it, with what it waits for."""
    nodes, place = _nodes(steps, counts)
    before: dict[str, set[str]] = defaultdict(set)
    for cause, effect in edges:
        if cause in place and effect in place and place[cause] != place[effect]:
            before[place[effect]].add(place[cause])
    levels = _levels(list(nodes), before)
    lines = []
    for key in sorted(nodes, key=lambda key: (levels[key], list(nodes).index(key))):
        causes = [nodes[cause].name for cause in nodes if cause in before[key]]
        after = f"  ← {', '.join(causes[:4])}{', …' if len(causes) > 4 else ''}" if causes else ""
        lines.append("  " * levels[key] + _line(nodes[key]) + in_one_line(after))
    if not nodes:
        lines.append("no steps are left")
    return "\n".join(lines)


def _nodes(steps: Sequence[Step], counts: Sequence[StepCounts]) -> tuple[dict[str, Node], dict[int, str]]:
    parts: dict[str, dict[StepState, int]] = defaultdict(dict)
    for part, state, number in counts:
        if part:
            parts[part][state] = number
    nodes: dict[str, Node] = {}
    place: dict[int, str] = {}
    for step in steps:
        key = f"part:{step.part}" if step.part else f"step:{step.number}"
        place[step.number] = key
        if key not in nodes:
            nodes[key] = (
                Node(step.part, parts[step.part], None)
                if step.part
                else Node(step.name, {step.state: 1}, step.job_id, _lost(step))
            )
    return nodes, place


def _lost(step: Step) -> Status | None:
    waits = step.state in (StepState.WAITING, StepState.HELD)
    return step.status if waits and step.status in (Status.CANCELLED, Status.EXPIRED) else None


def _levels(keys: Sequence[str], before: Mapping[str, set[str]]) -> dict[str, int]:
    """How many must end one after the other before each."""
    levels: dict[str, int] = {}

    def level(key: str) -> int:
        stack = [key]
        while stack:
            top = stack[-1]
            unknown = [each for each in before.get(top, ()) if each not in levels]
            if unknown:
                stack.extend(unknown)
            else:
                levels[top] = 1 + max((levels[each] for each in before.get(top, ())), default=-1)
                stack.pop()
        return levels[key]

    for key in keys:
        level(key)
    return levels


def _line(node: Node) -> str:
    total = sum(node.states.values())
    worst = next(state for state in _ORDER if state in node.states)
    sign = _coloured(_SIGNS[worst], worst)
    if node.job_id is not None:
        state = worst.value if node.lost is None else f"{worst.value}, {node.lost.value}"
        return f"{sign} {in_one_line(node.name)}  {_coloured(state, worst)}  {in_one_line(node.job_id)}"
    ended = node.states.get(StepState.DONE, 0)
    filled = _BAR * ended // total
    said = ", ".join(f"{count:,} {state.value}" for state, count in node.states.items())
    return f"{sign} {in_one_line(node.name)} x{total:,}  {'█' * filled}{'░' * (_BAR - filled)}  {said}"


_ORDER: Final = (
    StepState.FAILED,
    StepState.OPEN,
    StepState.HELD,
    StepState.WAITING,
    StepState.CANCELLED,
    StepState.DONE,
)


def _coloured(text: str, state: StepState) -> str:
    return f"\x1b[{_COLOURS[state]}m{text}\x1b[0m" if has_rich() else text

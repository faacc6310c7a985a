"""The style sheets: every colour has a name, and every pair of them can be read, in light and in dark (WCAG AA)."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

import pytest

STATIC = files("taskharbor.web").joinpath("static")
SURFACES = ("paper", "panel", "raised")
TEXT, SHAPE = 4.5, 3.0
DECORATION = {"line", "shade", "raised", "panel", "paper"}
"""Rules between rows, shadows and beds: nothing is lost on who does not see them."""


class Rule(NamedTuple):
    selector: str
    declarations: dict[str, str]


def _sheet(name: str) -> str:
    return re.sub(r"/\*.*?\*/", "", STATIC.joinpath(name).read_text("utf-8"), flags=re.DOTALL)


def _rules(text: str) -> list[Rule]:
    text = re.sub(r"@media[^{]*\{((?:[^{}]*\{[^{}]*\})*)[^{}]*\}", r"\1", text)
    found = []
    for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", text):
        declared = dict(part.strip().split(":", 1) for part in body.split(";") if ":" in part)
        found.append(Rule(" ".join(selector.split()), {name: value.strip() for name, value in declared.items()}))
    return found


RULES = _rules(_sheet("style.css")) + _rules(_sheet("history.css"))
COLOURS = {
    name.removeprefix("--"): tuple(
        part.strip() for part in value.removeprefix("light-dark(").removesuffix(")").split(",")
    )
    for name, value in next(rule for rule in RULES if rule.selector == ":root").declarations.items()
    if value.startswith("light-dark(#")
}
MODES = (pytest.param(0, id="light"), pytest.param(1, id="dark"))


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _name(value: str | None) -> str | None:
    found = re.fullmatch(r"var\(--([a-z-]+)\)", value or "")
    return found[1] if found else None


def test_contrast_is_computed_as_the_standard_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def test_colours_are_named_in_one_place_and_have_a_light_and_a_dark_value() -> None:
    for rule in RULES:
        if rule.selector != ":root":
            for name, value in rule.declarations.items():
                assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsl", value), f"{rule.selector} {name}: {value}"
    assert len(COLOURS) > 30
    assert all(len(pair) == 2 and all(re.fullmatch("#[0-9a-f]{6}", each) for each in pair) for pair in COLOURS.values())


def text_pairs() -> set[tuple[str, str]]:
    """Every colour of text with the ground it stands on: its rule's own, or any of the surfaces."""
    pairs = set()
    for rule in RULES:
        colour, ground = _name(rule.declarations.get("color")), _name(rule.declarations.get("background"))
        if colour in COLOURS and not rule.selector.startswith(".probe"):
            pairs |= {(colour, ground)} if ground else {(colour, surface) for surface in SURFACES}
    return pairs


@pytest.mark.parametrize("mode", MODES)
def test_every_text_can_be_read_on_what_it_stands_on(mode: int) -> None:
    pairs = text_pairs()
    assert len(pairs) > 30
    weak = {
        (colour, ground): round(contrast(COLOURS[colour][mode], COLOURS[ground][mode]), 2)
        for colour, ground in pairs
        if contrast(COLOURS[colour][mode], COLOURS[ground][mode]) < TEXT
    }
    assert not weak


@pytest.mark.parametrize("mode", MODES)
def test_every_shape_that_tells_something_stands_out_from_its_ground(mode: int) -> None:
    """Marks of plots, borders of fields, and the ring around what has the focus."""
    told = set()
    for rule in RULES:
        for name in ("fill", "stroke", "border", "border-color", "border-left-color", "outline", "accent-color"):
            told |= set(re.findall(r"var\(--([a-z-]+)\)", rule.declarations.get(name, "")))
        if rule.selector.startswith((".probe", ".k-", ".live", ".range", ".meter")):
            told |= set(re.findall(r"var\(--([a-z-]+)\)", " ".join(rule.declarations.values())))
    told -= DECORATION | {"quay-dim"}  # that one stands on the quay, and was looked at as text
    assert "quay-ring" in {_name(rule.declarations.get("outline-color")) for rule in RULES}
    grounds = ("paper", "panel")
    weak = {
        (colour, ground): round(contrast(COLOURS[colour][mode], COLOURS[ground][mode]), 2)
        for colour in told
        for ground in grounds
        if contrast(COLOURS[colour][mode], COLOURS[ground][mode]) < SHAPE
    }
    assert {"ring", "edge", "plot-good", "plot-bad"} <= told
    assert not weak
    for ground in ("quay", "quay-here"):
        assert contrast(COLOURS["quay-ring"][mode], COLOURS[ground][mode]) >= SHAPE


def test_every_state_has_a_colour_and_a_shape_of_its_own() -> None:
    template = files("taskharbor.web").joinpath("templates", "macros.html").read_text("utf-8")
    shapes = dict(re.findall(r'"(\w+)": "(\w+)"', template))
    symbols = set(
        re.findall(r'id="m-(\w+)"', files("taskharbor.web").joinpath("templates", "shapes.html").read_text("utf-8"))
    )
    styled = {name for rule in RULES for name in re.findall(r"\.badge\.(\w+)", rule.selector)}
    for state in ("ready", "scheduled", "claimed", "running", "done", "dlq", "expired", "cancelled", "paused"):
        assert state in styled
        assert shapes[state] in symbols
    told_apart = ("ready", "scheduled", "claimed", "running", "done", "dlq", "expired", "cancelled", "paused")
    assert len({shapes[state] for state in told_apart}) == len(told_apart)


def test_what_others_made_is_as_they_made_it() -> None:
    folder = STATIC.joinpath("vendor")
    versions = folder.joinpath("VERSIONS").read_text("utf-8")
    named = dict(reversed(pair) for pair in re.findall(r"sha256 (\w+)  (\S+)", versions))  # type: ignore[misc]
    for each in folder.iterdir():
        if each.name.endswith((".js", ".css")):
            assert sha256(each.read_bytes()).hexdigest() == named[each.name]
    assert {each.name for each in folder.iterdir() if each.name.endswith(".LICENSE")} == {
        "htmx.LICENSE",
        "uPlot.LICENSE",
    }

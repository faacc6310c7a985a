"""Plain tables for people: columns as wide as they need to be, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The rows under their headings, with a line between."""
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(headings, *texts, strict=True)]
    numeric = [bool(rows) and all(isinstance(cell, int | float) for cell in column) for column in _columns(rows)]
    right = numeric or [False] * len(headings)

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([line(headings), line(["-" * width for width in widths]), *(line(row) for row in texts)])


def _columns(rows: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    return list(zip(*rows, strict=True))

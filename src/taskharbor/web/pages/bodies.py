"""Stored bytes as people read them: indented JSON, or what is known of bytes that are none."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, NamedTuple

from taskharbor.core.envelope import is_sealed, key_id_of
from taskharbor.web.pages.words import size, visible

MOST_SHOWN: Final = 65_536
"""Characters of one payload or result on a page. `taskharbor jobs show` has the rest."""
_SAMPLE_BYTES: Final = 768


class Body(NamedTuple):
    text: str
    """What to show, already cut and with nothing in it that would not show; empty where a note says it all."""
    note: str = ""
    sealed: bool = False


def body_of(stored: bytes | None) -> Body | None:
    """None for nothing."""
    if stored is None:
        return None
    if not stored:
        return Body("", "empty")
    if is_sealed(stored):
        return Body("", f"encrypted, key id {visible(key_id_of(stored) or '?')}, {size(len(stored))}", sealed=True)
    if len(stored) > 4 * MOST_SHOWN:
        # To read and indent all of it for the first page of it would take longer than anybody waits.
        return _cut(
            stored[:MOST_SHOWN].decode("utf-8", "replace"), f"{size(len(stored))}, the beginning as it is stored"
        )
    try:
        value = json.loads(stored, parse_constant=_refuse)
        # Escapes stay: a control character inside a text of JSON is shown as JSON writes it.
        text = json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return _other(stored)
    return _cut(text, "")


def _other(stored: bytes) -> Body:
    try:
        text = stored.decode()
    except UnicodeDecodeError:
        sample = base64.b64encode(stored[:_SAMPLE_BYTES]).decode()
        more = " and so on" if len(stored) > _SAMPLE_BYTES else ""
        return Body(sample, f"{size(len(stored))} that are not text, in base64{more}")
    return _cut(text, "text that is not JSON")


def _cut(text: str, note: str) -> Body:
    if len(text) > MOST_SHOWN:
        note = f"{note}; " if note else ""
        return Body(visible(text[:MOST_SHOWN]), f"{note}the first {MOST_SHOWN:,} characters of {len(text):,}")
    return Body(visible(text), note)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON, though Python reads it")

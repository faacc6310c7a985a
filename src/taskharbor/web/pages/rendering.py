"""Templates into answers: everything escaped, control characters spelled out, and a strict policy on each page."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from taskharbor import __version__
from taskharbor.core.limiting import rate_text
from taskharbor.web.pages import words

THEMES: Final = ("auto", "light", "dark")


def policy(nonce: str, *, own_style: bool = False) -> str:
    """Scripts with this answer's nonce, styles and everything else from here alone; no frames, no plugins. With
    `own_style`, one block of styles with the nonce as well: positions in plots."""
    style = f"'self' 'nonce-{nonce}'" if own_style else "'self'"
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src {style}; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )


def _shown(value: Any) -> Any:
    """What a template writes out. Names, errors and payloads come from jobs, so from anybody."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return words.visible(value)
    return value


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("taskharbor.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        *("short", "gist", "count", "compact", "share", "seconds", "size"),
        *("exact", "machine", "ago", "many", "carried", "phase"),
    ):
        made.filters[name] = getattr(words, name)
    made.filters["rate_text"] = rate_text
    made.globals["version"] = __version__
    return made


def rendered(name: str, context: Mapping[str, Any]) -> str:
    return environment().get_template(name).render(context)


def page(name: str, context: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    nonce = secrets.token_urlsafe(16)
    text = rendered(name, {**context, "nonce": nonce})
    return _answer(text, status, policy(nonce, own_style=bool(context.get("rules"))))


def piece(name: str, context: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """A part of a page that is there already."""
    return _answer(rendered(name, context), status, policy(secrets.token_urlsafe(16)))


def _answer(text: str, status: int, policy: str) -> HTMLResponse:
    # A name from a job may be half of a surrogate pair, which no encoding sends; `visible` has spelled out the rest.
    return HTMLResponse(
        text.encode("utf-8", "backslashreplace"),
        status,
        {
            "content-security-policy": policy,
            "cache-control": "no-store",
            # Not `no-referrer`: with that, browsers call the origin of our own forms null.
            "referrer-policy": "same-origin",
            "vary": "Cookie",
        },
    )

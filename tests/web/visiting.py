"""A visitor without a browser: logs in, reads pages, and sends the forms that are on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import httpx
from tests.web.serving import Served

VOID = {"meta", "link", "input", "br", "img", "hr", "path", "rect", "circle", "use"}
HTML = {"accept": "text/html"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """What a parser makes of an answer: elements, forms with their fields, and text."""

    response: httpx.Response
    elements: list[Element] = field(default_factory=list)
    forms: list[dict[str, Any]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[Element] = []
        self._form: dict[str, Any] | None = None
        self.feed(self.response.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        element = Element(tag, given)
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)
        if tag == "form":
            self._form = {"action": given.get("action"), "method": given.get("method"), "fields": {}}
            self.forms.append(self._form)
        elif tag == "input" and self._form is not None and given.get("type") == "hidden":
            self._form["fields"][given["name"]] = given.get("value") or ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass
        if tag == "form":
            self._form = None

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].text += data
        self.words.append(data)

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def form(self, action: str, **fields: str) -> dict[str, Any]:
        """The first form to this address whose hidden fields have these values."""
        for form in self.forms:
            if form["action"] == action and all(form["fields"].get(name) == value for name, value in fields.items()):
                return form
        raise AssertionError(f"no form to {action} with {fields}: {[form['action'] for form in self.forms]}")

    def actions(self) -> set[str]:
        return {form["action"] for form in self.forms if form["method"] == "post"}


class Visitor:
    def __init__(self, server: Served, secret: str | None = None) -> None:
        self.http = server.with_token(None)
        self.http.headers.update(HTML)
        if secret is not None:
            login = self.get("/login")
            assert self.send(login, "/login", token=secret).status_code == 303

    def get(self, path: str, **headers: str) -> Page:
        return Page(self.http.get(path, headers=headers))

    def send(self, page: Page, action: str, having: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        """Fill in a form of this page and send it, as a browser without scripts does."""
        form = page.form(action, **(having or {}))
        return self.http.post(action, data={**form["fields"], **fields})

    def follow(self, response: httpx.Response) -> Page:
        assert response.status_code == 303, response.text
        return self.get(response.headers["location"])


def said(page: Page) -> str:
    """The word about the last change."""
    found = [element.text for element in page.all("p") if (element.attributes.get("class") or "").startswith("said ")]
    return found[0] if found else ""

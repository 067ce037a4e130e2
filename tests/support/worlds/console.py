"""A visitor of the console, as a browser without script is one: keeps its cookie, fills in forms that are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import NamedTuple, Self

import httpx
import pytest
from starlette.types import ASGIApp

from geminga.app.console.serving.application import Console, Mounted


class Form(NamedTuple):
    """A form of a page."""

    method: str
    action: str
    #: What is in its fields.
    fields: dict[str, str]


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._area = self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append(Form(given.get("method", "get"), given["action"], {}))
        elif tag == "input" and (given.get("type") != "checkbox" or "checked" in given):
            self.found[-1].fields[given["name"]] = given.get("value", "")
        elif tag == "textarea":
            self._area = given["name"]
            self.found[-1].fields[self._area] = ""
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and ("selected" in given or self._select not in self.found[-1].fields):
            self.found[-1].fields[self._select] = given["value"]

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.found[-1].fields[self._area] += data


def forms_of(page: str) -> list[Form]:
    """All forms of a page."""
    parser = _Forms()
    parser.feed(page)
    return parser.found


def console_above(administration: ASGIApp) -> httpx.ASGITransport:
    """A console by itself, whose brokers ask who somebody is: no time passes, and what is drawn counts up."""
    drawn = iter(range(10_000))
    mounted = Mounted(
        administration,
        lambda size: f"{next(drawn):0{2 * size}x}",
        lambda: 0.0,
        lambda: 0,
        True,
        True,
        lambda *_: pytest.fail("no client is asked for"),
        lambda: None,
        "c",
        "v",
    )
    return httpx.ASGITransport(Console(mounted))


def browser_at(console: httpx.ASGITransport) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=console, base_url="http://here", follow_redirects=True)


class Visitor:
    """Goes through pages; ``follow_redirects`` as browsers do."""

    def __init__(self, url: str, **options) -> None:
        self.browser = httpx.Client(base_url=url, follow_redirects=True, timeout=20, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.browser.close()

    def look(self, path: str, **query: object) -> httpx.Response:
        """A page below ``/console``."""
        return self.browser.get(f"/console{path}", params={name: str(value) for name, value in query.items()})

    def send(self, form: Form, given: Mapping[str, str] = {}) -> httpx.Response:
        """Fill in a form and press its button."""
        values = {**form.fields, **given}
        if form.method == "get":
            return self.browser.get(form.action, params=values)
        return self.browser.post(form.action, data=values)

    def ask(self, act: str, **query: object) -> tuple[str, Form]:
        """The question of an act, in words, and its form."""
        return self.asked(self.look(f"/acts/{act}", **query))

    @staticmethod
    def asked(answer: httpx.Response) -> tuple[str, Form]:
        """The same of a page that was loaded."""
        found = re.search(r'<p class="question">(.*?)</p>', answer.text, re.DOTALL)
        assert found is not None, answer.text
        form = next(form for form in forms_of(answer.text) if "/acts/" in form.action)
        return found[1].strip(), form

    def act(self, act: str, given: Mapping[str, str] = {}, **query: object) -> httpx.Response:
        """Ask, fill in what is asked for until the question is complete, and do it."""
        form = self.ask(act, **query)[1]
        if form.method == "get":
            form = self.asked(self.send(form, given))[1]
        return self.send(form, given)


def notice_of(answer: httpx.Response) -> str:
    """What a page says was done."""
    found = re.search(r'<p class="notice[^"]*" role="status">(.*?)</p>', answer.text, re.DOTALL)
    return found[1].strip() if found is not None else ""


def problem_of(answer: httpx.Response) -> str:
    """What a page says went wrong."""
    found = re.search(r'<p class="problem" role="alert">(.*?)</p>', answer.text, re.DOTALL)
    return found[1].strip() if found is not None else ""

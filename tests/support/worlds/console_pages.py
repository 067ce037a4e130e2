"""The console of a broker in a simulation, as a visitor sees it: pages as text, forms filled in and sent."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from html import unescape
from html.parser import HTMLParser
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Message

from geminga.app.console.core.addresses import address
from geminga.app.console.serving.application import Console, Mounted
from geminga.client import Client
from support.clusters.transacting import Transacting, producing
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.rest_world import http_scope, rest_application

_ALONE: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Shown(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def text(self) -> str:
        """Words alone, with single blanks."""
        main = self.html.partition("<main")[2] or self.html
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", f"<main{main}")).split())

    @property
    def is_sound(self) -> bool:
        """Every tag is closed, each input has its label, no id is there twice, one heading is the page's."""
        checker = _Checker()
        checker.feed(self.html)
        assert not checker.open, checker.open
        assert checker.headings == 1, checker.headings
        assert len(checker.ids) == len(set(checker.ids)), checker.ids
        assert checker.fields <= checker.labels, checker.fields - checker.labels
        return True


class _Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.headings = 0
        self.labels: set[str] = set()
        self.fields: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        assert "style" not in told
        assert not any(name.startswith("on") for name in told)
        if "id" in told:
            self.ids.append(str(told["id"]))
        self.headings += tag == "h1"
        if tag == "label":
            self.labels.add(str(told["for"]))
        if tag in ("textarea", "select") or (tag == "input" and told.get("type") != "hidden"):
            self.fields.add(str(told["id"]))
        if tag not in _ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


class Visiting:
    """One visitor of one console."""

    def __init__(self, world: BrokerWorld, client: Transacting, *, role: str = "", can_act: bool = True) -> None:
        self.world = world
        self.client = client
        self.application: ASGIApp = rest_application(world.broker)
        runtime = world.runtime
        self.console = Console(
            Mounted(
                self.application,
                runtime.rng.token,
                runtime.clock.monotonic,
                runtime.clock.wall_ms,
                can_act,
                False,
                _no_client,
                lambda: None,
                "standalone",
                "test",
            )
        )
        self.role = role
        self._cookie = ""

    async def get(self, path: str, **query: object) -> Shown:
        return await self._ask("GET", address(path, **query))

    async def page(self, path: str, **query: object) -> str:
        """The words of a page that is there and sound."""
        shown = await self.get(path, **query)
        assert shown.status == 200, shown.text
        assert shown.is_sound
        return shown.text

    async def act(self, name: str, given: Mapping[str, str], **query: object) -> Shown:
        """Answer the question of an act: what its form has, and ``given``; the page that says what was done."""
        asked = await self.get(f"/acts/{name}", **query)
        assert asked.status == 200, asked.text
        assert asked.is_sound
        answer = await self.post(name, {**form_of(asked.html), **given})
        if answer.status == 303:
            return await self._ask("GET", answer.headers["location"])
        return answer

    async def post(self, name: str, form: Mapping[str, str]) -> Shown:
        """Send the form of an act as it is."""
        return await self._ask("POST", address(f"/acts/{name}"), form)

    async def _ask(self, method: str, target: str, form: Mapping[str, str] | None = None) -> Shown:
        path, _, query = target.partition("?")
        body = urlencode(form or {}).encode()
        sent: list[Message] = []
        is_asked = False

        async def receive() -> Message:
            nonlocal is_asked
            if is_asked:
                return {"type": "http.disconnect"}
            is_asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"host", b"broker:8080"), (b"cookie", self._cookie.encode())]
        if method == "POST":
            headers.append((b"content-type", b"application/x-www-form-urlencoded"))
        if self.role:
            headers.append((b"authorization", self.role.encode()))
        scope = http_scope(method, f"{path}?{query}", headers)
        scope |= {"asgi": {"version": "3.0"}, "client": ("10.0.0.7", 51042), "state": {}}
        await self.console(scope, receive, send)
        told = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        self._cookie = told.get("set-cookie", self._cookie).partition(";")[0]
        return Shown(sent[0]["status"], told, b"".join(message.get("body", b"") for message in sent[1:]))


def form_of(html: str) -> dict[str, str]:
    """What the form of a page would send if nothing were entered."""
    found = {}
    for field in re.findall(r"<input [^>]*>", html.partition("<main")[2]):
        told = dict(re.findall(r'(\w+)="([^"]*)"', field))
        if told.get("type") != "checkbox" or " checked" in field:
            found[unescape(told["name"])] = unescape(told.get("value", ""))
    for name, text in re.findall(r'<textarea [^>]*name="([^"]*)"[^>]*>(.*?)</textarea>', html, re.DOTALL):
        found[name] = unescape(text)
    for name, choices in re.findall(r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', html, re.DOTALL):
        chosen = re.search(r'value="([^"]*)" selected', choices) or re.search(r'value="([^"]*)"', choices)
        assert chosen is not None
        found[name] = unescape(chosen[1])
    return found


def query_of(link: str) -> dict[str, str]:
    """Of an address."""
    return dict(parse_qsl(link.partition("?")[2]))


@asynccontextmanager
async def _no_client(*_: object) -> AsyncIterator[Client]:
    raise AssertionError("no client in a simulation")
    yield  # type: ignore[unreachable]


def visit(story: Callable[[Visiting], Awaitable[None]], **settings: Any) -> None:
    """With a broker in virtual time, and a producer at the usual topic."""

    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await story(Visiting(world, client))

    run_with_broker(scenario, bookies=1, **settings)

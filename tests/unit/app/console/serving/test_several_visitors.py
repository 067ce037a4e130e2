"""Pages that are made while other things happen: a login in another tab, a visitor that asks for everything at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final

import httpx

from geminga.app.console.serving.application import PAGES_MAX, PAGES_OF_ONE_MAX
from geminga.runtime import next_turn
from support.worlds.console import browser_at, console_above, forms_of

#: Turns of the loop after which nothing is under way that needs no answer of the administration.
SETTLED: Final = 200


class Held:
    """An administration that keeps lists of topics of ``whom`` until it is let go; the console above it."""

    def __init__(self, whom: str) -> None:
        self.held = 0
        self._whom = f"Bearer {whom}".encode()
        self._go = asyncio.Event()
        self._console = console_above(self._administration)

    async def _administration(self, scope: Any, _receive: object, send: Any) -> None:
        who = dict(scope["headers"]).get(b"authorization")
        if who == self._whom and "persistent" in scope["path"]:
            self.held += 1
            await self._go.wait()
        await send({"type": "http.response.start", "status": 401 if who is None else 200, "headers": []})
        await send({"type": "http.response.body", "body": b"[]"})

    def browser(self) -> httpx.AsyncClient:
        return browser_at(self._console)

    def let_go(self) -> None:
        self._go.set()


async def log_in(browser: httpx.AsyncClient, token: str) -> None:
    form = forms_of((await browser.get("/console/login")).text)[-1]
    assert (await browser.post(form.action, data={**form.fields, "credentials": token})).url.path == "/console/"


async def settled() -> None:
    for _ in range(SETTLED):
        await next_turn()


def told(story: Callable[[AsyncExitStack], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            await story(stack)

    asyncio.run(run())


def test_a_page_that_was_asked_for_before_a_login_does_not_take_it_back() -> None:
    async def story(stack: AsyncExitStack) -> None:
        held = Held("a.b.c")
        browser = await stack.enter_async_context(held.browser())
        await log_in(browser, "a.b.c")
        late = asyncio.ensure_future(browser.get("/console/topics"))
        await settled()
        assert held.held > 0
        await log_in(browser, "d.e.f")
        held.let_go()
        assert (await late).status_code == 200
        assert (await browser.get("/console/topics")).url.path == "/console/topics"

    told(story)


def test_one_visitor_leaves_places_to_the_others() -> None:
    async def story(stack: AsyncExitStack) -> None:
        held = Held("a.b.c")
        many = [await stack.enter_async_context(held.browser()) for _ in range(2)]
        other = await stack.enter_async_context(held.browser())
        for browser in many:
            await log_in(browser, "a.b.c")
        await log_in(other, "d.e.f")
        asked = [asyncio.ensure_future(many[number % 2].get("/console/topics")) for number in range(PAGES_MAX)]
        await settled()
        assert (await other.get("/console/topics")).status_code == 200
        held.let_go()
        statuses = [(await answer).status_code for answer in asked]
        assert statuses.count(200) == PAGES_OF_ONE_MAX
        assert statuses.count(503) == PAGES_MAX - PAGES_OF_ONE_MAX
        # Places come back.
        assert (await many[0].get("/console/topics")).status_code == 200

    told(story)

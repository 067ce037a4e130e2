"""``console.js`` alone, on a page of two parts that nobody but the test serves, with the browser's clock in hand."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Page, Route

from tools.browser.chrome import ROOT

#: Round trips that a page gets to come to rest.
TURNS = 4
_HOST = "http://console.test"
_SCRIPT = ROOT / "src" / "geminga" / "app" / "console" / "static" / "console.js"
_PAGE = """<!doctype html><html lang="en"><title>t</title><body>
<nav><a href="/console/topics" data-key="t">Topics</a></nav>
<main><form><input type="search" id="q"></form>
<div data-part="rates">{part}</div>
<form method="post" action="/console/acts/x"><button id="act">Do it</button></form></main>
<p data-live-state hidden></p><button data-keys-help hidden>Keys</button>
<script type="module" src="/console/static/console.js"></script>"""
_PART = """<p id="count">{number}</p><a href="/a">link</a><details><summary>more</summary>inside {number}</details>
<input name="typed" value="">"""


class Served:
    """What the page's server answers, and what it was asked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.number = 0
        self.asked: list[str] = []
        self.posts = 0
        self.status = 200
        page.route(f"{_HOST}/**", self._answer)

    def _answer(self, route: Route) -> None:
        url = urlsplit(route.request.url)
        if url.path.endswith("console.js"):
            route.fulfill(body=_SCRIPT.read_text(encoding="utf-8"), content_type="text/javascript")
            return
        if route.request.method == "POST":
            self.posts += 1
            route.fulfill(status=204)  # the page stays
            return
        part = parse_qs(url.query).get("part", [""])[0]
        if part:
            self.number += 1
            self.asked.append(part)
            route.fulfill(status=self.status, body=_PART.format(number=self.number), content_type="text/html")
            return
        route.fulfill(body=_PAGE.format(part=_PART.format(number=0)), content_type="text/html")

    def open(self) -> None:
        """With the browser's clock stopped."""
        self.page.clock.install(time=0)
        self.page.clock.pause_at(1)  # installed alone it goes on with the machine's
        self.page.goto(f"{_HOST}/console/topics/x?q=1")
        self.page.wait_for_selector("[data-live-state]:not([hidden])")

    def pass_s(self, seconds: int, asked: int) -> None:
        """Let time pass, and wait until the server was asked ``asked`` times in all and the page is at rest."""
        self.page.clock.run_for(seconds * 1000)
        # Each turn brings the page's own requests to their answers, too; animation frames stand still with the clock.
        for _ in range(TURNS):
            self.page.evaluate("() => fetch('/console/static/console.js').then(answer => answer.text()).then(() => 0)")
            if len(self.asked) > asked:
                break
        assert len(self.asked) == asked, (seconds, self.asked, asked)


def _refreshes(served: Served) -> None:
    page = served.page
    served.open()
    page.locator("details summary").click()
    page.locator("[data-part] a").focus()
    served.pass_s(5, 1)
    assert page.locator("#count").text_content() == "1"
    assert page.locator("details[open]").count() == 1, "an open part is open after a refresh"
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/a", "what had the focus has it again"
    served.pass_s(5, 2)
    page.locator("[name=typed]").fill("half a word")
    served.pass_s(5, 3)
    assert page.locator("#count").text_content() == "2", "what somebody types into stays"


def _slows_down(served: Served) -> None:
    served.open()
    served.status = 503
    served.pass_s(5, 1)
    assert "does not answer" in (served.page.locator("[data-live-state]").text_content() or "")
    served.pass_s(9, 1)
    served.pass_s(1, 2)
    served.pass_s(19, 2)
    served.status = 200
    served.pass_s(1, 3)
    assert served.page.locator("[data-live-state]").text_content() == "Live"
    served.pass_s(5, 4)
    served.status = 403
    served.pass_s(5, 5)
    served.pass_s(300, 5)


def _keys(served: Served) -> None:
    page = served.page
    served.open()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("?")
    assert page.locator("dialog").count() == 0, "a key that is typed is text"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.type("?")
    assert page.locator("dialog[open]").count() == 1
    assert "Topics" in (page.locator("dialog dl").text_content() or "")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("g")
    with page.expect_navigation(url=f"{_HOST}/console/topics"):
        page.keyboard.press("t")


def _sends_once(served: Served) -> None:
    served.open()
    for _ in range(2):
        served.page.evaluate("document.getElementById('act').click()")
        served.pass_s(1, 0)
    assert served.posts == 1, served.posts


STORIES: tuple[Callable[[Served], None], ...] = (_refreshes, _slows_down, _keys, _sends_once)


def told(browser: Browser) -> list[str]:
    """What did not hold, a line each."""
    found = []
    for story in STORIES:
        context = browser.new_context()
        try:
            story(Served(context.new_page()))
        except AssertionError as error:
            found.append(f"console.js {story.__name__}: {error}")
        finally:
            context.close()
    return found

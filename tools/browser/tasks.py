"""The twelve tasks that people come to a console for, done by a browser at both widths; and one by keys alone.

Each opens the console's first page, finds its way by what is to be seen there, and its effect is asked of
``geminga.admin``, not of the console.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, Error, Locator, Page

import geminga.admin.blocking
from tools.browser import world
from tools.browser.chrome import NARROW, ROOT, SIZES, Watch, keep, overflow, tab
from tools.standalone_process import StandaloneProcess

PICTURES: Final = ROOT / "docs" / "console"
#: Bytes of a picture that is kept.
PICTURE_MAX: Final = 60_000


class Visit:
    """Somebody at the console, at one width."""

    def __init__(self, page: Page, process: StandaloneProcess, size: tuple[int, int], keeps: bool) -> None:
        self.page = page
        self.process = process
        self.width = size[0]
        self._keeps = keeps
        self.admin = geminga.admin.blocking.connect(process.web_url)

    def begin(self, section: str) -> None:
        """The first page, then a section of its navigation."""
        self.page.goto(f"{self.process.web_url}/console/")
        if self.width == NARROW[0]:
            self.page.get_by_role("button", name="Menu").click()
        self.page.get_by_role("navigation", name="Sections").get_by_role("link", name=section, exact=True).click()
        self.fits()

    def fits(self) -> None:
        """What is open is no wider than the window, and no error."""
        assert overflow(self.page) == 0, f"{self.page.url} is {overflow(self.page)} pixels too wide"
        assert self.page.locator("h1").count() == 1

    def fill(self, **values: str) -> None:
        """Fields of the page by their label, with blanks for underscores."""
        for name, value in values.items():
            field = self.main.get_by_label(name.replace("_", " "), exact=True)
            if field.evaluate("field => field.localName") == "select":
                field.select_option(value)
            elif field.get_attribute("type") == "checkbox":
                field.set_checked(value == "yes")
            else:
                field.fill(value)

    def press(self, name: str) -> None:
        """A button of the page, or a link that looks like one."""
        found = self.main.get_by_role("button", name=name).or_(self.main.get_by_role("link", name=name))
        found.first.click()
        self.page.wait_for_load_state()
        self.fits()

    def told(self) -> str:
        """What the page says of what was done."""
        return " ".join((self.page.get_by_role("status").first.text_content() or "").split())

    def question(self) -> str:
        """What is asked before something is done."""
        return " ".join((self.page.locator(".question").text_content() or "").split())

    @property
    def main(self) -> Locator:
        """The page without its frame."""
        return self.page.locator("main")

    def text(self) -> str:
        """All of it, in one line."""
        return " ".join(self.main.inner_text().split())

    def picture(self, name: str) -> None:
        """Keep what is to be seen, for the docs."""
        if self._keeps:
            size = keep(self.page, PICTURES / f"{name}-{self.width}.png")
            assert size <= PICTURE_MAX, f"the picture {name} has {size} bytes"

    def subscription(self, topic: str, name: str) -> str:
        """A subscription of this width's own, with everything before it."""
        own = f"{name}-{self.width}"
        self.admin.subscriptions.create(topic, own, "earliest")
        return own

    def backlog(self, topic: str, name: str) -> int:
        """Messages that a subscription has not acknowledged."""
        stats = self.admin.topics.stats(topic, precise_backlog=True)
        return int(stats["subscriptions"][name]["msgBacklog"])


def browses_messages(visit: Visit) -> None:
    """1: browse and filter."""
    visit.begin("Messages")
    visit.fill(Topic=world.ORDERS)
    visit.press("Show")
    assert "A-01499" in visit.text(), "the newest first"
    visit.picture("messages")
    visit.fill(Key="customer-7", Order="oldest")
    visit.press("Show")
    said = visit.text()
    assert "customer-7" in said
    assert "customer-8" not in said


def decodes(visit: Visit) -> None:
    """2: a value by its schema, and why it is not delivered."""
    visit.begin("Messages")
    visit.fill(Topic=world.ORDERS, Key="customer-9")
    visit.press("Show")
    visit.main.get_by_role("table").get_by_role("link").first.click()
    said = visit.text()
    assert '"currency": "CHF"' in said, said
    assert "AVRO version 1" in said
    assert "Nobody consumes fraud-check" in said
    visit.picture("message")


def publishes(visit: Visit) -> None:
    """8: a test message."""
    visit.begin("Messages")
    visit.fill(Topic=world.ORDERS)
    visit.press("Show")
    before = visit.admin.topics.internal_stats(world.ORDERS)["entriesAddedCounter"]
    visit.press("Publish a message")
    value = '{"order_id": "T-1", "customer": "me", "amount_cents": 7, "currency": "EUR", "gift_note": null}'
    visit.fill(Key="me", Properties="channel=test", Value=value)
    visit.press("Publish")
    assert "is stored" in visit.told(), visit.text()
    assert visit.admin.topics.internal_stats(world.ORDERS)["entriesAddedCounter"] == before + 1
    assert "T-1" in visit.text()
    visit.page.go_back()
    visit.fill(Value="no JSON")
    visit.press("Publish")
    assert visit.main.get_by_role("alert").count() == 1, "what does not fit the schema is refused"


def sends_letters_back(visit: Visit) -> None:
    """9: dead letters."""
    visit.begin("Dead letters")
    visit.fill(Namespace="shop/orders")
    visit.press("Show")
    visit.main.get_by_role("link", name=f"persistent://{world.LETTERS}", exact=True).click()
    visit.picture("dead-letters")
    sent = visit.admin.topics.internal_stats(world.REFUNDS)["entriesAddedCounter"]
    visit.press("Send letters back")
    visit.fill(How_many="2")
    visit.press("Send back")
    assert "sent back" in visit.told(), visit.text()
    assert visit.admin.topics.internal_stats(world.REFUNDS)["entriesAddedCounter"] >= sent + 2


def looks_at_the_cluster(visit: Visit) -> None:
    """10: brokers, bookies, health."""
    visit.begin("Brokers and bookies")
    said = visit.text()
    assert "This broker serves" in said
    assert visit.admin.brokers.list()[0] in said
    visit.picture("cluster")


def compares_schemas(visit: Visit) -> None:
    """11: versions and what is different."""
    visit.begin("Schemas")
    visit.fill(Topic=world.ORDERS)
    visit.press("Show")
    visit.main.get_by_role("link", name="with version 0").click()
    said = visit.text()
    assert "currency" in said
    assert "gift_note" in said
    assert "added" in said
    visit.picture("schemas")


def grants(visit: Visit) -> None:
    """12: who may do what."""
    role = f"auditor-{visit.width}"
    visit.begin("Permissions")
    visit.fill(Namespace="shop/orders")
    visit.press("Show")
    visit.picture("permissions")
    visit.press("Grant a permission")
    visit.fill(Role=role)
    visit.press("Next")
    visit.fill(consume="yes")
    visit.press("Grant")
    assert visit.admin.permissions.get("shop/orders")[role] == ["consume"]
    visit.press(f"Revoke the rights of {role}")
    visit.press("Revoke 1 permission")
    assert role not in visit.admin.permissions.get("shop/orders")


TASKS: Final[tuple[Callable[[Visit], None], ...]] = (
    browses_messages,
    decodes,
    publishes,
    sends_letters_back,
    looks_at_the_cluster,
    compares_schemas,
    grants,
)


def done(browser: Browser, process: StandaloneProcess, watch: Watch, keeps: bool) -> list[str]:
    """Do all of them at both widths; a line for each that could not be done."""
    found = []
    for size in SIZES:
        for task in TASKS:
            with _visiting(browser, process, watch, size, keeps) as visit:
                try:
                    task(visit)
                except (AssertionError, Error) as error:
                    found.append(f"{task.__name__} at {size[0]}: {error} ({visit.page.url})")
                    visit.page.screenshot(path=process.log.with_name(f"{task.__name__}-{size[0]}.png"))
    print(f"{len(TASKS)} tasks at {len(SIZES)} widths: {len(found)} failed")
    return found


@contextmanager
def _visiting(
    browser: Browser, process: StandaloneProcess, watch: Watch, size: tuple[int, int], keeps: bool
) -> Iterator[Visit]:
    with tab(browser, watch, size) as page:
        visit = Visit(page, process, size, keeps)
        try:
            yield visit
        finally:
            visit.admin.close()

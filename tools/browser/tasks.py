"""The twelve tasks that people come to a console for, done by a browser at both widths; and one by keys alone.

Each opens the console's first page, finds its way by what is to be seen there, and its effect is asked of
``geminga.admin``, not of the console.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, Error, Locator, Page

import geminga.admin.blocking
from tools.browser import world
from tools.browser.addresses import page_of
from tools.browser.chrome import NARROW, ROOT, SIZES, Watch, keep, overflow, tab
from tools.standalone_process import StandaloneProcess

PICTURES: Final = ROOT / "docs" / "console"
#: Bytes of a picture that is kept.
PICTURE_MAX: Final = 60_000
#: Presses of the tabulator until something is not reached by it.
_TABS_MAX: Final = 120
_FOCUSED: Final = """() => {
  const element = document.activeElement;
  return {words: element.textContent.trim(), outline: getComputedStyle(element).outlineStyle};
}"""
#: One order, as REST publishes it: version 0 of the schema.
_MESSAGE: Final = {
    "schemaVersion": 0,
    "producerName": "trial",
    "messages": [{"payload": '{"order_id": "L-1", "customer": "me", "amount_cents": 1}'}],
}


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
        self.follow(self.page.get_by_role("navigation", name="Sections").get_by_role("link", name=section, exact=True))

    def show(self, section: str, **values: str) -> None:
        """What a section has of what its fields say."""
        self.begin(section)
        self.fill(**values)
        self.press("Show")

    def focused(self) -> str:
        """The words of what has the focus, which is to be seen."""
        found: dict[str, str] = self.page.evaluate(_FOCUSED)
        assert found["outline"] not in ("", "none"), f"nothing shows that {found['words']!r} has the focus"
        return found["words"]

    def tab_to(self, words: str) -> None:
        """By the tabulator, then the return key."""
        for _ in range(_TABS_MAX):
            self.page.keyboard.press("Tab")
            if self.focused() == words:
                before = self.page.url
                self.page.keyboard.press("Enter")
                self.page.wait_for_function("before => location.href !== before", arg=before)
                self.page.wait_for_load_state()
                return
        raise AssertionError(f"{words!r} is not reached by keys")

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
        self.follow(found.first)

    def follow(self, link: Locator) -> None:
        """To the page that it leads to."""
        with self.page.expect_navigation():
            link.click()
        self.fits()

    def told(self) -> str:
        """What the page says of what was done."""
        return " ".join((self.main.get_by_role("status").first.text_content() or "").split())

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
    visit.show("Messages", Topic=world.ORDERS)
    assert "A-01499" in visit.text(), "the newest first"
    visit.picture("messages")
    visit.fill(Key="customer-7", Order="oldest")
    visit.press("Show")
    said = visit.text()
    assert "customer-7" in said
    assert "customer-8" not in said


def decodes(visit: Visit) -> None:
    """2: a value by its schema, and why it is not delivered."""
    visit.show("Messages", Topic=world.ORDERS, Key="customer-9")
    visit.follow(visit.main.get_by_role("table").get_by_role("link").first)
    said = visit.text()
    assert '"currency": "CHF"' in said, said
    assert "AVRO version 1" in said
    assert "Nobody consumes fraud-check" in said
    visit.picture("message")


def publishes(visit: Visit) -> None:
    """8: a test message."""
    visit.show("Messages", Topic=world.ORDERS)
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
    visit.show("Dead letters", Namespace="shop/orders")
    visit.follow(visit.main.get_by_role("link", name=f"persistent://{world.LETTERS}", exact=True))
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
    visit.show("Schemas", Topic=world.ORDERS)
    visit.follow(visit.main.get_by_role("link", name="with version 0"))
    said = visit.text()
    assert "currency" in said
    assert "gift_note" in said
    assert "added" in said
    visit.picture("schemas")


def grants(visit: Visit) -> None:
    """12: who may do what."""
    role = f"auditor-{visit.width}"
    visit.show("Permissions", Namespace="shop/orders")
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


def sees_the_lag(visit: Visit) -> None:
    """3: lag of each subscription, and plots of it."""
    _topic(visit)
    lag = visit.backlog(world.ORDERS, "billing")
    said = visit.text()
    assert f"{lag:,}" in said, (lag, said)
    # The page asks again by itself: what comes meanwhile is seen without a click.
    visit.process.request("POST", f"/topics/persistent/{world.ORDERS}", _MESSAGE)
    visit.main.get_by_text(f"{lag + 1:,}", exact=True).first.wait_for()
    visit.picture("topic")
    visit.follow(visit.main.get_by_role("link", name="billing", exact=True))
    assert visit.main.get_by_role("img", name="Backlog").count() == 1
    assert "Nobody consumes billing" in visit.text()
    visit.picture("subscription")


def resets_a_cursor(visit: Visit) -> None:
    """4: back to the beginning, once it was said how much that delivers again."""
    name = visit.subscription(world.ORDERS, "rewound")
    whole = visit.backlog(world.ORDERS, name)
    visit.admin.subscriptions.skip_all(world.ORDERS, name)
    _subscription(visit, name)
    visit.press("Reset the cursor")
    visit.fill(Go_to="earliest")
    visit.press("Say what that does")
    assert f"{whole:,}" in visit.question(), visit.question()
    assert visit.backlog(world.ORDERS, name) == 0, "nothing is done before its question"
    visit.picture("question")
    visit.press("Reset the cursor")
    assert visit.backlog(world.ORDERS, name) == whole
    assert name in visit.told()


def lists_topics(visit: Visit) -> None:
    """5: with rates and sizes, searched and paged on the server."""
    visit.show("Topics", Namespace="iot/telemetry")
    row = visit.main.get_by_role("row").filter(has_text=world.READINGS)
    cells = [cell.inner_text() for cell in row.get_by_role("cell").all()]
    assert any(re.search(r"[1-9]\d*(\.\d+)?$", cell) for cell in cells), cells
    visit.fill(Namespace="shop/orders")
    visit.press("Show")
    visit.picture("topics")
    visit.fill(Namespace="shop/catalogue", Name_has="changes-2")
    visit.press("Show")
    assert visit.main.get_by_role("row").count() == 1 + 10


def makes_topics(visit: Visit) -> None:
    """6: a topic with partitions, and more of them."""
    topic = f"shop/catalogue/made-{visit.width}"
    visit.show("Topics", Namespace="shop/catalogue")
    visit.press("Create a topic")
    visit.fill(Name=f"made-{visit.width}", Partitions="3")
    visit.press("Create the topic")
    assert visit.admin.topics.partitioned_metadata(topic)["partitions"] == 3
    visit.press("Add partitions")
    visit.fill(Partitions_in_all="5")
    visit.press("Add partitions")
    assert visit.admin.topics.partitioned_metadata(topic)["partitions"] == 5


def empties_a_backlog(visit: Visit) -> None:
    """7: clears one, expires another, and nothing before the question said how many."""
    cleared, expired = (visit.subscription(world.ORDERS, name) for name in ("cleared", "expired"))
    whole = visit.backlog(world.ORDERS, cleared)
    _subscription(visit, cleared)
    visit.press("Clear the backlog")
    assert f"{whole:,} messages" in visit.question()
    assert visit.backlog(world.ORDERS, cleared) == whole
    visit.press(f"Clear {whole:,} messages")
    assert visit.backlog(world.ORDERS, cleared) == 0
    _subscription(visit, expired)
    visit.press("Expire messages")
    visit.fill(**{"Older than, seconds": "1"})
    visit.press("Say what that does")
    visit.press("Expire them")
    assert visit.backlog(world.ORDERS, expired) < whole


def by_keys_alone(visit: Visit) -> None:
    """13: the way to a subscription, and its backlog cleared, without a mouse; what has the focus is seen."""
    name = visit.subscription(world.ORDERS, "by-keys")
    keys = visit.page.keyboard
    visit.page.goto(f"{visit.process.web_url}{page_of('/topics', namespace='shop/orders')}")
    keys.press("Tab")
    assert visit.focused() == "Skip to the content"
    keys.press("Enter")
    keys.press("/")
    keys.type("checkout")
    keys.press("Enter")
    visit.page.wait_for_url("**q=checkout**")
    visit.tab_to(f"persistent://{world.ORDERS}")
    visit.tab_to(name)
    visit.tab_to("Clear the backlog")
    visit.tab_to(f"Clear {visit.backlog(world.ORDERS, name):,} messages")
    assert visit.backlog(world.ORDERS, name) == 0, visit.text()


def _topic(visit: Visit) -> None:
    visit.show("Topics", Namespace="shop/orders")
    visit.follow(visit.main.get_by_role("link", name=f"persistent://{world.ORDERS}", exact=True))


def _subscription(visit: Visit, name: str) -> None:
    _topic(visit)
    visit.follow(visit.main.get_by_role("link", name=name, exact=True))


TASKS: Final[tuple[Callable[[Visit], None], ...]] = (
    browses_messages,
    decodes,
    sees_the_lag,
    resets_a_cursor,
    lists_topics,
    makes_topics,
    empties_a_backlog,
    publishes,
    sends_letters_back,
    looks_at_the_cluster,
    compares_schemas,
    grants,
    by_keys_alone,
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

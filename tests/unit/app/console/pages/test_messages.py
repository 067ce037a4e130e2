"""Pages of messages, as a visitor sees them."""

from __future__ import annotations

import re
from html import unescape

from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, query_of, visit
from support.worlds.handles_world import sim_admin

EVIL = "<script>alert(1)</script>"


def test_messages_are_shown_newest_first_and_page_by_page() -> None:
    async def story(visitor: Visiting) -> None:
        for number in range(3):
            await visitor.client.send(b"m%d" % number, metadata={"partition_key": f"k{number}"})
        page = await visitor.get("/messages", topic=TOPIC, shown=2)
        assert page.is_sound
        assert "m2" in page.text
        assert "m0" not in page.text
        link = re.search(r'rel="next" href="([^"]*)"', page.html)
        assert link is not None
        query = query_of(unescape(link[1]))
        assert "m0" in await visitor.page("/messages", **query)
        assert "Nothing that is looked for" in await visitor.page("/messages", topic=TOPIC, key="none")
        found = await visitor.page("/messages", topic=TOPIC, key="k1")
        assert "m1" in found
        assert "m2" not in found

    visit(story)


def test_whatever_a_message_says_is_text() -> None:
    async def story(visitor: Visiting) -> None:
        await visitor.client.send(EVIL.encode(), metadata={"partition_key": EVIL})
        page = await visitor.get("/messages", topic=TOPIC)
        assert EVIL not in page.html
        assert page.text.count(EVIL) == 2
        message = await visitor.get("/message", topic=TOPIC, id=_first_id(page.html))
        assert EVIL not in message.html
        assert EVIL in message.text

    visit(story)


def test_message_says_what_each_subscription_did_with_it() -> None:
    async def story(visitor: Visiting) -> None:
        await visitor.page("/messages")
        await sim_admin(visitor.application).subscriptions.create(TOPIC, "late", "earliest")
        await visitor.client.send(b"\x00\x01")
        assert "waiting at late: why" in await visitor.page("/messages", topic=TOPIC, subscription="late")
        listed = await visitor.get("/messages", topic=TOPIC)
        page = await visitor.page("/message", topic=TOPIC, id=_first_id(listed.html))
        assert "late waiting It waits: no consumer is connected. Nobody consumes late: 1 entries wait." in page
        assert "00000000 00 01 .." in page
        file = await visitor.get("/message/download", topic=TOPIC, id=_first_id(listed.html))
        assert file.body == b"\x00\x01"
        assert file.headers["content-disposition"].startswith("attachment; ")
        assert file.headers["content-type"] == "application/octet-stream"

    visit(story)


def test_form_that_is_not_understood_is_answered_with_a_sentence() -> None:
    async def story(visitor: Visiting) -> None:
        for query, words in (
            ({"start": "x"}, "'x' is no message id: expected LEDGER:ENTRY"),
            ({"at": "soon"}, "'soon' is no time"),
            ({"property": "x"}, "is no property: expected name=value"),
            ({"shown": "0"}, "shown is a whole number from 1 to 100"),
            ({"topic": "a://b"}, "is no name of a topic"),
        ):
            page = await visitor.get("/messages", **{"topic": TOPIC, **query})
            assert page.status == 400
            assert words in page.text
        kept = await visitor.get("/messages", topic="non-persistent://public/default/t")
        assert (kept.status, "keeps no messages" in kept.text) == (404, True)
        missing = await visitor.get("/messages", topic="persistent://public/default/none")
        assert missing.status == 404

    visit(story)


def _first_id(html: str) -> str:
    found = re.search(r"[?;&]id=([0-9A%]+)", html)
    assert found is not None
    return found[1].replace("%3A", ":")

"""Messages of a topic as the administration hands them out, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from geminga.admin import AdminClient
from geminga.admin.errors import ForbiddenError, NotFoundError, UnauthorizedError
from geminga.app.console.core.positions import start_of
from geminga.app.console.core.sought import Sought
from geminga.app.console.reading import browsing
from geminga.app.console.reading.browsing import BrowsedPage, Browsing, browse, one_message, partitions_of
from geminga.app.console.reading.deliveries import deliveries_of, standings_of
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch
from support.clusters.transacting import Transacting, producing
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.handles_world import sim_admin
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import rest_application
from support.worlds.rights_world import PATHS, Story, tell
from support.worlds.rights_world import TOPIC as RIGHTS_TOPIC

#: As Pulsar's broker answers, 401 for some of what a role may not do.
REFUSED = (ForbiddenError, UnauthorizedError)


class Shelf:
    """A topic, and who asks for its messages."""

    def __init__(self, world: BrokerWorld, client: Transacting) -> None:
        self.application = rest_application(world.broker)
        self.admin: AdminClient = sim_admin(self.application)
        self.client = client

    async def publish(self, payload: bytes, **metadata: Any) -> None:
        answer = await self.client.send(payload, metadata=metadata)
        assert answer.type == pb.BaseCommand.SEND_RECEIPT, answer

    async def batch(self, *payloads: bytes) -> None:
        await self.publish(encode_batch(payloads, 0), num_messages_in_batch=len(payloads))

    async def page(self, **request: Any) -> BrowsedPage:
        return await browse(self.admin, Browsing(TOPIC, **request))

    async def all_pages(self, **request: Any) -> list[str]:
        """Values of all, following the links."""
        found = await self.page(**request)
        texts = [each.value.text for each in found.messages]
        while found.further:
            found = await self.page(**{**request, "start": found.further})
            texts += [each.value.text for each in found.messages]
        return texts


def run(story: Callable[[Shelf], Awaitable[None]]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await story(Shelf(world, client))

    run_with_broker(scenario, bookies=1)


@pytest.mark.parametrize("shown", [1, 2, 3, 100])
def test_pages_follow_one_another_through_batches_in_both_orders(shown: int) -> None:
    async def story(shelf: Shelf) -> None:
        await shelf.publish(b"0")
        await shelf.batch(b"1", b"2", b"3")
        await shelf.publish(b"4")
        await shelf.batch(b"5", b"6")
        newest = await shelf.all_pages(shown=shown)
        assert newest == ["6", "5", "4", "3", "2", "1", "0"]
        assert await shelf.all_pages(shown=shown, newest_first=False) == newest[::-1]

    run(story)


def test_page_begins_where_it_is_told_to() -> None:
    async def story(shelf: Shelf) -> None:
        for number in range(4):
            await shelf.publish(b"%d" % number)
        first = (await shelf.page(newest_first=False)).messages[0].message
        second = (await shelf.page(newest_first=False)).messages[1].message.id
        assert await shelf.all_pages(start=second) == ["1", "0"]
        assert await shelf.all_pages(start=second, newest_first=False) == ["1", "2", "3"]
        assert await shelf.all_pages(start="earliest", newest_first=False) == ["0", "1", "2", "3"]
        assert await shelf.all_pages(start="latest", newest_first=False) == ["3"]
        assert await shelf.all_pages(start="latest") == ["3", "2", "1", "0"]
        assert await shelf.all_pages(start_ms=1, newest_first=False) == ["0", "1", "2", "3"]
        assert first.publish_time.startswith("1970-01-01T00:00:00.")

    run(story)


def test_page_says_how_far_it_looked_for_what_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "LOOKED_AT_MAX", 5)

    async def story(shelf: Shelf) -> None:
        for number in range(12):
            await shelf.publish(b"needle" if number == 0 else b"hay", partition_key=f"k{number % 2}")
        found = await shelf.page(sought=Sought(text="NEEDLE"))
        assert (len(found.messages), found.looked_at) == (0, 5)
        assert found.further.endswith(":6")
        assert await shelf.all_pages(sought=Sought(text="NEEDLE")) == ["needle"]
        assert len(await shelf.all_pages(sought=Sought(key="k1"))) == 6

    run(story)


def test_page_looks_at_so_many_messages_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "MESSAGES_MAX", 2)

    async def story(shelf: Shelf) -> None:
        await shelf.batch(b"1", b"2", b"3", b"4", b"5")
        found = await shelf.page(sought=Sought(text="5"), newest_first=False)
        assert (found.messages, found.further[-2:]) == ([], ":2")
        assert await shelf.all_pages(sought=Sought(text="5"), newest_first=False) == ["5"]
        assert await shelf.all_pages() == ["5", "4", "3", "2", "1"]

    run(story)


def test_few_pages_have_entries_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "READING_MAX", 2)
    monkeypatch.setattr(browsing, "TOGETHER", 1)

    async def story(shelf: Shelf) -> None:
        for number in range(4):
            await shelf.publish(b"%d" % number)
        under_way = most = 0

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal under_way, most
            is_entry = "/entry/" in scope["path"]
            under_way += is_entry
            most = max(most, under_way)
            await seconds(0.1)
            await shelf.application(scope, receive, send)
            under_way -= is_entry

        admin = sim_admin(counted)
        pages = await asyncio.gather(*(browse(admin, Browsing(TOPIC)) for _ in range(5)))
        assert {len(page.messages) for page in pages} == {4}
        assert most == 2

    run(story)


def test_page_looks_at_one_entry_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "LOOKED_AT_BYTES_MAX", 3)

    async def story(shelf: Shelf) -> None:
        await shelf.publish(b"aaaa")
        await shelf.publish(b"bbbb")
        found = await shelf.page()
        assert (len(found.messages), found.looked_at) == (1, 1)
        assert await shelf.all_pages() == ["bbbb", "aaaa"]

    run(story)


def test_value_is_read_by_the_schema_it_was_written_with() -> None:
    async def story(shelf: Shelf) -> None:
        definition = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
        await shelf.admin.schemas.upload(TOPIC, {"type": "AVRO", "schema": definition, "properties": {}})
        await shelf.publish(b"\x04hi", schema_version=bytes(8))
        await shelf.publish(b"\x04hi", schema_version=bytes(7) + b"\x09")
        unknown, known = (await shelf.page()).messages
        assert (known.value.text, known.value.read_by) == ('{\n  "a": "hi"\n}', "AVRO version 0")
        assert "version 9 of the schema can not be had: Schema not found" in unknown.value.problem

    run(story)


def test_message_that_can_not_be_read_hides_no_other() -> None:
    async def story(shelf: Shelf) -> None:
        await shelf.publish(b"before")
        await shelf.publish(b"damaged", compression=pb.ZLIB, uncompressed_size=10)
        await shelf.publish(b"huge", compression=pb.ZLIB, uncompressed_size=1 << 30)
        await shelf.publish(b"after")
        after, huge, damaged, before = (await shelf.page()).messages
        assert (after.value.text, before.value.text) == ("after", "before")
        assert "can not be decompressed" in damaged.message.problem
        assert "1073741824 bytes decompressed" in huge.message.problem
        assert await shelf.all_pages(shown=1) == ["after", "", "", "before"]

    run(story)


def test_one_message_is_shown_whole() -> None:
    async def story(shelf: Shelf) -> None:
        await shelf.batch(b"1", b"2")
        [second, first] = (await shelf.page()).messages
        message, value = await one_message(shelf.admin, TOPIC, first.message.id)
        assert (message.payload, value.text, message.batch_size) == (b"1", "1", 2)
        assert (await one_message(shelf.admin, TOPIC, second.message.id))[0].payload == b"2"
        with pytest.raises(NotFoundError, match="has no message 2"):
            await one_message(shelf.admin, TOPIC, second.message.id.removesuffix("1") + "2")
        with pytest.raises(NotFoundError):
            await one_message(shelf.admin, TOPIC, "99:99")

    run(story)


def test_empty_topic_has_no_page_behind_its_first() -> None:
    async def story(shelf: Shelf) -> None:
        assert await shelf.page() == BrowsedPage([], 0, "", 0, 0)
        assert await partitions_of(shelf.admin, TOPIC) == 0

    run(story)


def test_who_may_consume_may_look_and_nobody_else() -> None:
    async def story(rights: Story) -> None:
        producer = await rights.producer("root")
        await producer.publish(0)
        await rights.grant("reader", "consume")
        await rights.grant("writer", "produce")
        await rights.do("PUT", f"{PATHS[RIGHTS_TOPIC]}/subscription/s")
        reader, writer = (sim_admin(rights.application, role) for role in ("reader", "writer"))
        [found] = (await browse(reader, Browsing(RIGHTS_TOPIC))).messages
        start = start_of(found.message.id)
        told = await deliveries_of(reader, RIGHTS_TOPIC, found.message, start, now_ms=0)
        assert [each.subscription for each in told.standings] == ["s"]
        assert len(await standings_of(reader, RIGHTS_TOPIC, "s", [found.message], now_ms=0)) == 1
        with pytest.raises(REFUSED):
            await browse(writer, Browsing(RIGHTS_TOPIC))
        with pytest.raises(REFUSED):
            await one_message(writer, RIGHTS_TOPIC, found.message.id)
        with pytest.raises(REFUSED):
            await reader.messages.publish(RIGHTS_TOPIC, {"messages": [{"payload": "x"}]})
        stored = await writer.messages.publish(RIGHTS_TOPIC, {"messages": [{"payload": "x"}]})
        assert stored["messagePublishResults"][0]["errorCode"] == 0

    tell(story)

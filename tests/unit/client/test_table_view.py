"""Table views in virtual time: who listens from now on is told no value that is older than what it was told."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.broker.compaction.part import TopicCompaction, compact
from geminga.client._table_view import TableView
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"
COVERED = (TableView,)


def test_a_slow_listener_is_told_the_newest_value_last_and_every_later_change() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        for key in ("a", "b", "c", "d"):
            await producer.send(b"old", partition_key=key)
        view = await client.create_table_view(TOPIC)
        told: list[tuple[str, bytes | None]] = []

        async def listen(key: str, value: bytes | None) -> None:
            await wait_ms(100)
            told.append((key, value))

        listening = asyncio.ensure_future(view.for_each_and_listen(listen))
        await wait_ms(150)
        for key, value in (("d", b"new"), ("b", b"new"), ("c", None), ("e", b"new"), ("c", b"newer")):
            await producer.send(value, partition_key=key)
        await listening
        await view.refresh()
        assert dict(told) == dict(view.items())
        assert told[0] == ("a", b"old")
        assert told[-1] == ("c", b"newer")
        before = len(told)
        await producer.send(b"later", partition_key="a")
        await producer.send(b"latest", partition_key="a")
        await view.refresh()
        assert told[before:] == [("a", b"later"), ("a", b"latest")]
        await view.close()

    run_with_broker(scenario)


def test_a_listener_that_raises_for_what_is_there_is_told_of_changes_all_the_same() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        for key in ("a", "b"):
            await producer.send(b"old", partition_key=key)
        view = await client.create_table_view(TOPIC)
        told: list[tuple[str, bytes]] = []

        async def listen(key: str, value: bytes) -> None:
            told.append((key, value))
            await wait_ms(100)
            if value == b"old":
                raise ValueError(key)

        listening = asyncio.ensure_future(view.for_each_and_listen(listen))
        await wait_ms(50)
        await producer.send(b"new", partition_key="b")
        with pytest.raises(ValueError, match="a"):
            await listening
        await producer.send(b"newer", partition_key="b")
        await view.refresh()
        assert told[0] == ("a", b"old")
        assert told[-1] == ("b", b"newer")

    run_with_broker(scenario)


@pytest.mark.parametrize(("given", "received"), [({}, 3), ({"is_read_compacted": False}, 30)], ids=["as it is", "told"])
def test_a_table_view_begins_with_what_was_compacted(given: gc.ReaderArguments, received: int) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        for number in range(30):
            await producer.send(b"%d" % number, partition_key=f"k{number % 3}")
        topic = await broker.broker.registry.get(TopicName.parse(TOPIC), create=False)
        await compact(topic)
        part = topic.parts.find(TopicCompaction)
        assert part is not None
        while part.is_running:
            await wait_ms(100)
        view = await client.create_table_view(TOPIC, **given)
        assert dict(view.items()) == {"k0": b"27", "k1": b"28", "k2": b"29"}
        assert view._consumer.stats().messages_received == received
        await producer.send(b"new", partition_key="k1")
        await view.refresh()
        assert view["k1"] == b"new"

    run_with_broker(scenario)


@pytest.mark.parametrize("at", ["what is there", "what changed meanwhile"])
def test_a_listener_whose_caller_gave_up_is_told_of_nothing_more(at: str) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        await producer.send(b"old", partition_key="a")
        view = await client.create_table_view(TOPIC)
        told: list[bytes] = []

        async def listen(key: str, value: bytes) -> None:
            told.append(value)
            await wait_ms(100)

        listening = asyncio.ensure_future(view.for_each_and_listen(listen))
        await wait_ms(50)
        await producer.send(b"new", partition_key="a")
        if at != "what is there":
            await wait_ms(100)
        count = len(told)
        listening.cancel()
        await asyncio.wait({listening})
        await producer.send(b"newer", partition_key="a")
        await view.refresh()
        await wait_ms(500)
        assert view["a"] == b"newer"
        assert told == [b"old", b"new"][:count]

    run_with_broker(scenario)


def test_refreshes_that_are_given_up_leave_nothing_behind() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        view = await client.create_table_view(TOPIC)
        goes_on = asyncio.Event()

        async def listen(key: str, value: bytes) -> None:
            await goes_on.wait()

        await view.for_each_and_listen(listen)
        await producer.send(b"new", partition_key="a")
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(view.refresh(), 0.1)
        assert view._waiters == []
        goes_on.set()
        await view.refresh()

    run_with_broker(scenario)


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_view_of_a_topic_that_stores_nothing_has_what_comes_from_now_on(partitions: int) -> None:
    topic = TopicName.parse("non-persistent://public/default/topic")

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        if partitions:
            await broker.broker.resources.create_partitioned_topic(topic, partitions)
        told: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()
        async with client.create_table_view(str(topic)) as view, client.create_producer(str(topic)) as producer:
            assert len(view) == 0
            await view.for_each_and_listen(lambda key, value: told.set_result((key, value)))
            await producer.send(b"new", partition_key="a")
            assert await asyncio.wait_for(told, 5) == ("a", b"new")
            assert view["a"] == b"new"
            with pytest.raises(gc.NotAllowedError):  # nobody knows what was published before
                await view.refresh()

    run_with_broker(scenario)

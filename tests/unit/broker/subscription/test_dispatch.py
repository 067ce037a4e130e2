"""Dispatch when reads fail, are called off, or overlap with what consumers do."""

from __future__ import annotations

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.broker.subscription.cursor_reader import CursorReader
from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.broker.subscription.dispatch_single_active import SingleActiveDispatch
from geminga.model import EARLIEST
from geminga.model.errors import DiskIOError
from geminga.runtime import spawn
from support.worlds.subscriptions import Sub, settle, with_topic

TEXTS = [f"m{i}" for i in range(10)]


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared, Sub.Key_Shared])
def test_failed_reads_are_tried_again(sub_type):
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.publish(*TEXTS)
        topic.bookie.read_error = DiskIOError("broken")
        connection = topic.connect()
        consumer = await topic.join(connection, sub_type)
        kind = SingleActiveDispatch if sub_type == Sub.Exclusive else SharedDispatch
        assert isinstance(topic.subscriptions["sub"].dispatch, kind)
        assert connection.texts() == []
        topic.bookie.read_error = None
        handlers.handle_flow(connection, 1, 1)
        assert connection.texts() == []  # not before its time
        await settle(16)
        assert connection.texts() == TEXTS
        if sub_type != Sub.Exclusive:
            topic.bookie.read_error = DiskIOError("broken")
            topic.subscriptions["sub"].dispatch.redeliver(consumer, None, -1)
            await settle(1)
            topic.bookie.read_error = None
            await settle(61)
            assert connection.texts() == TEXTS * 2

    with_topic(scenario, cache_size_mb=0)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Shared])
def test_consumers_changing_during_a_read_lose_and_repeat_nothing(sub_type):
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.publish(*TEXTS)
        topic.bookie.holds_replies = True
        first, second = topic.connect(), topic.connect()
        await topic.join(first, sub_type)
        first.drop()
        await topic.join(second, sub_type)
        topic.bookie.holds_replies = False
        topic.bookie.release()
        await settle()
        assert first.texts() == []
        assert second.texts() == TEXTS

    with_topic(scenario, cache_size_mb=0)


def test_seek_waits_for_the_read_under_way():
    async def scenario(topic):
        await topic.create_subscription("sub")
        await topic.publish(*TEXTS)
        topic.bookie.holds_replies = True
        connection = await topic.joined()
        subscription = topic.subscriptions["sub"]
        seeking = spawn(subscription.fence(), name="seek")
        await settle()
        assert not seeking.done()
        topic.bookie.holds_replies = False
        topic.bookie.release()
        await seeking
        await subscription.cursor.reset(EARLIEST)
        subscription.unfence()
        await topic.join(connection, consumer_id=2)
        assert connection.texts(2) == TEXTS
        assert connection.texts(1) == []

    with_topic(scenario, cache_size_mb=0)


def test_reader_called_off_rewinds_and_says_when_it_is_idle():
    async def scenario(topic):
        subscription = await topic.create_subscription("sub")
        await topic.publish(*TEXTS)
        idle, results = [], []
        reader = CursorReader(subscription.cursor, lambda: idle.append(True))
        topic.bookie.holds_replies = True
        reader.read(5, 1 << 20, results.append)
        assert reader.is_busy
        reader.rewind()
        topic.bookie.holds_replies = False
        topic.bookie.release()
        await reader.wait_idle()
        await settle()
        assert (idle, results) == ([True], [])
        reader.read(5, 1 << 20, results.append)
        await reader.wait_idle()
        assert [e.entry_id for e in results[0]] == [0, 1, 2, 3, 4]

    with_topic(scenario, cache_size_mb=0)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Exclusive])
def test_long_backlog_lets_others_have_their_turn(sub_type):
    async def scenario(topic):
        connection = await topic.joined(sub_type, permits=1)
        await topic.publish("first")  # from here on the cursor reads from memory
        await topic.publish(*[f"m{i}" for i in range(3000)])
        handlers.handle_flow(connection, 1, 3000)
        assert 1 < len(connection.messages) < 3001
        await settle()
        assert len(connection.messages) == 3001

    with_topic(scenario)


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_redelivery_of_many_large_entries_reads_them_some_at_a_time(sub_type):
    async def scenario(topic):
        texts = [f"{i:3d}" + "x" * 20_000 for i in range(30)]
        await topic.create_subscription("sub")
        await topic.publish(*texts, key="k")
        connection = topic.connect()
        consumer = await topic.join(connection, sub_type, permits=100)
        assert connection.texts() == texts
        read_calls = topic.bookie.read_calls
        sizes: list[int] = []
        read = topic.bookie.read_entries

        def measured(ledger_id, entry_ids, done, **more):
            def on_read(results):
                sizes.append(sum(map(len, results)))
                done(results)

            read(ledger_id, entry_ids, on_read, **more)

        topic.bookie.read_entries = measured
        topic.subscriptions["sub"].dispatch.redeliver(consumer, None, -1)
        await settle(1)
        assert connection.texts() == texts * 2
        assert max(sizes) <= 2 * 50_000
        assert topic.bookie.read_calls > read_calls + 5

    with_topic(scenario, cache_size_mb=0, dispatcher_max_read_size_bytes=50_000)

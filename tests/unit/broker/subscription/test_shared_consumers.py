"""Shared and Key_Shared: whose turn it is, what a lost consumer had, which keys stay with whom."""

from __future__ import annotations

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.model.errors import ConsumerAssignError, ConsumerBusyError
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.subscriptions import Sub, acknowledge, settle, with_topic

TEXTS = [f"m{i}" for i in range(10)]


def test_shared_consumers_take_turns():
    async def scenario(topic):
        connections = [topic.connect() for _ in range(3)]
        for index, connection in enumerate(connections):
            await topic.join(connection, Sub.Shared, consumer_id=index)
        await topic.publish(*[f"m{i}" for i in range(90)])
        texts = [connection.texts() for connection in connections]
        assert sorted(len(t) for t in texts) == [20, 30, 40]  # whole turns of 20 messages
        assert sorted(t for group in texts for t in group) == sorted(f"m{i}" for i in range(90))

    with_topic(scenario)


def test_shared_better_priority_goes_first_while_it_has_permits():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Shared, priority_level=1)
        await topic.join(second, Sub.Shared, priority_level=0, permits=4)
        await topic.publish(*TEXTS)
        assert second.texts() == TEXTS[:4]
        assert first.texts() == TEXTS[4:]

    with_topic(scenario)


def test_shared_messages_of_a_lost_consumer_go_to_others_with_count():
    async def scenario(topic):
        lost, left = topic.connect(), topic.connect()
        await topic.join(lost, Sub.Shared, permits=4)
        await topic.join(left, Sub.Shared, permits=0)
        positions = await topic.publish(*TEXTS[:4])
        acknowledge(lost, positions[1:2])
        lost.drop()
        handlers.handle_flow(left, 1, 100)
        await settle()
        assert left.texts() == ["m0", "m2", "m3"]
        assert [m.redelivery_count for m in left.messages] == [1, 1, 1]

    with_topic(scenario)


def test_key_shared_key_stays_with_its_consumer_until_drained():
    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        keys = [f"k{i}" for i in range(20)]
        await topic.join(first, Sub.Key_Shared, name="a")
        positions = {}
        for key in keys:
            positions[key] = (await topic.publish(key, key=key))[0]
        await topic.join(second, Sub.Key_Shared, name="b")
        for key in keys:
            await topic.publish(f"{key}-2", key=key)
        moved = [key for key in keys if f"{key}-2" not in first.texts()]
        assert 3 < len(moved) < 17
        assert second.texts() == []  # all that moved is draining
        acknowledge(first, [positions[moved[0]]])
        await settle()
        assert second.texts() == [f"{moved[0]}-2"]
        first.drop()
        await settle()
        expected = {key: [key, f"{key}-2"] for key in keys if key != moved[0]}
        for key, texts in expected.items():
            assert [t for t in second.texts() if t in (key, f"{key}-2")] == texts

    with_topic(scenario)


def test_key_shared_slow_consumer_does_not_hold_up_others():
    async def scenario(topic):
        slow, fast = topic.connect(), topic.connect()
        await topic.join(slow, Sub.Key_Shared, name="a", permits=1)
        await topic.join(fast, Sub.Key_Shared, name="b")
        for i in range(200):
            await topic.publish(f"m{i}", key=f"k{i}")
        assert len(slow.messages) == 1
        assert len(fast.messages) > 50

    with_topic(scenario)


def test_key_shared_sticky_ranges_must_not_overlap():
    def policy(*ranges):
        return pb.KeySharedMeta(
            keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=first, end=last) for first, last in ranges]
        )

    async def scenario(topic):
        first, second = topic.connect(), topic.connect()
        await topic.join(first, Sub.Key_Shared, keySharedMeta=policy((0, 30000)))
        with pytest.raises(ConsumerAssignError):
            await topic.join(second, Sub.Key_Shared, keySharedMeta=policy((30000, 65535)))
        with pytest.raises(ConsumerBusyError):
            await topic.join(second, Sub.Key_Shared)
        await topic.join(second, Sub.Key_Shared, keySharedMeta=policy((30001, 65535)))
        await topic.publish(*TEXTS)
        assert sorted(first.texts() + second.texts()) == TEXTS
        assert first.texts()
        assert second.texts()

    with_topic(scenario)

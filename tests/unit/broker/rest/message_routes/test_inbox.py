"""What consumers within the broker are sent, as much as there is room for."""

from __future__ import annotations

import asyncio

from geminga.broker.rest.message_routes.inbox import HttpInbox, InboxRoom
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.hot import encode_message_head


def parts(size_bytes: int, entry_id: int = 0) -> list[bytes]:
    return [encode_message_head(1, 3, entry_id, -1, size_bytes, 2, (5,), None), b"x" * size_bytes]


def inbox_of(room: InboxRoom, bytes_max: int = 100) -> HttpInbox:
    return HttpInbox("/peer", room, bytes_max, lambda: None)


def test_messages_arrive_as_they_were_sent() -> None:
    async def scenario() -> None:
        room = InboxRoom(1000)
        inbox = inbox_of(room)
        inbox.write_many([*parts(10), *parts(20, 1)])
        assert (len(inbox), room.used_bytes, inbox.news.is_set()) == (2, 30, True)
        arrived = inbox.pop()
        assert (arrived.consumer_id, arrived.position) == (1, Position(3, 0))
        assert (arrived.redeliveries, arrived.ack_set, arrived.data) == (2, (5,), b"x" * 10)
        assert room.used_bytes == 20
        inbox.drop(lambda entry: entry.position == Position(3, 1))
        assert (len(inbox), room.used_bytes) == (0, 0)

    asyncio.run(scenario())


def test_it_takes_messages_while_it_is_open_and_below_its_bound() -> None:
    async def scenario() -> None:
        room = InboxRoom(1000)
        inbox, woken = inbox_of(room), []
        assert (inbox.is_writable, inbox.is_held) == (False, True)
        inbox.on_writable(lambda: woken.append("open"))
        inbox.open(100)
        assert (inbox.is_writable, woken) == (True, ["open"])
        inbox.write_many(parts(100))
        assert not inbox.is_writable
        inbox.on_writable(lambda: woken.append("popped"))
        inbox.pop()
        assert woken == ["open", "popped"]
        inbox.shut()
        inbox.on_writable(lambda: woken.append("never"))
        inbox.look()
        assert woken == ["open", "popped"]

    asyncio.run(scenario())


def test_room_is_shared_and_who_waits_for_it_is_woken_when_another_frees_it() -> None:
    async def scenario() -> None:
        room, woken = InboxRoom(100), []
        full, waiting, closed = inbox_of(room, 1000), inbox_of(room), inbox_of(room)
        for inbox in (full, waiting, closed):
            inbox.open(1000)
        full.write_many(parts(150))
        for inbox, name in ((waiting, "waiting"), (closed, "closed")):
            assert not inbox.is_writable
            inbox.on_writable(lambda name=name: woken.append(name))  # type: ignore[misc]
        closed.close()
        full.close()
        assert (woken, room.used_bytes) == (["waiting"], 0)

    asyncio.run(scenario())


def test_end_of_a_topic_is_news() -> None:
    async def scenario() -> None:
        inbox = inbox_of(InboxRoom(100))
        inbox.send_command(
            pb.BaseCommand(
                type=pb.BaseCommand.REACHED_END_OF_TOPIC, reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=4)
            )
        )
        assert (inbox.at_end, inbox.news.is_set()) == ({4}, True)
        assert await inbox.check_liveness()

    asyncio.run(scenario())

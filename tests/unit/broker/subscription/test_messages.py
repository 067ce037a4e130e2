"""Message ids on the wire and facts of entries."""

from __future__ import annotations

from geminga.broker.subscription.last_message_id import NO_MESSAGE, last_message_id
from geminga.broker.subscription.messages import (
    entry_timestamp_ms,
    is_marker,
    last_batch_index,
    message_id_data,
    position_from,
)
from geminga.model import EARLIEST, LATEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_broker_entry_metadata, encode_entry
from support.worlds.subscriptions import with_topic


def test_positions_go_through_unsigned_ids_and_back():
    for position in (EARLIEST, LATEST, Position(3, -1), Position(3, 4)):
        assert position_from(message_id_data(position)) == position


def entry(**fields):
    return encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=10, **fields), b"x")


def test_entry_facts_come_from_its_headers():
    assert entry_timestamp_ms(entry()) == 10
    stamped = encode_broker_entry_metadata(broker_timestamp_ms=77, index=None) + entry()
    assert entry_timestamp_ms(stamped) == 77
    assert entry_timestamp_ms(b"") == 0
    assert not is_marker(entry())
    assert is_marker(entry(marker_type=21))
    assert last_batch_index(entry()) == -1
    assert last_batch_index(entry(num_messages_in_batch=1)) == 0


def test_last_message_of_a_trimmed_or_empty_topic_is_none():
    async def scenario(topic):
        assert await last_message_id(topic.ledger) == (NO_MESSAGE, -1)
        await topic.publish("marker", marker_type=10)
        assert await last_message_id(topic.ledger) == (NO_MESSAGE, -1)

    with_topic(scenario)


def test_what_no_reader_sees_at_the_end_of_a_topic_is_passed_once():
    async def scenario(topic):
        looked_at = []

        def hides(position, metadata):
            looked_at.append(position)
            return metadata.partition_key == "hidden"

        async def last():
            looked_at.clear()
            found, _ = await last_message_id(topic.ledger, [hides], tail=topic)
            assert (found, -1) == await last_message_id(topic.ledger, [lambda _, of: of.partition_key == "hidden"])
            return found

        first, *hidden = [*await topic.publish("m"), *await topic.publish(*["m"] * 20, key="hidden")]
        assert await last() == first
        assert looked_at == [*reversed(hidden), first]
        assert await last() == first
        assert looked_at == [first]
        more = await topic.publish(*["m"] * 3, key="hidden")
        assert await last() == first
        assert looked_at == [*reversed(more), first]
        # What was readable may be no more, for a while.
        for limit in (hidden[10], LATEST, first, LATEST):
            topic.ledger.set_read_limit(limit)
            assert await last() == first
            assert looked_at == [first]
        (second,) = await topic.publish("m")
        await topic.publish("m", "m", key="hidden")
        for _ in range(2):
            assert await last() == second
        topic.ledger.set_read_limit(hidden[5])
        assert await last() == first

    with_topic(scenario)

"""Stamps in front of entries, and where their numbers go on."""

from __future__ import annotations

from geminga.broker.publishing.stamps import INDEX_PROPERTY, EntryStamps
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import broker_entry_metadata, encode_entry
from support.worlds.subscriptions import RecordedTopic, with_topic


def test_stamps_number_messages_on() -> None:
    stamps = EntryStamps(has_time=True, has_index=True)
    stamps.index = 9
    first, second = (broker_entry_metadata(entry) for entry in stamps.stamped([b"not an entry", b"nor this"], 1234))
    assert first is not None
    assert second is not None
    assert (first.broker_timestamp, first.index, second.index) == (1234, 10, 11)


def batch_of(messages: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=messages)
    return encode_entry(metadata, b"payload")


def test_numbers_go_on_behind_those_of_the_log_and_are_noted_with_its_ledgers() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        first = EntryStamps(has_time=False, has_index=True)
        await first.follow(topic.ledger)
        assert (first.index, topic.ledger.stored.noted()) == (-1, {})
        await topic.append(first.stamped([batch_of(3), batch_of(4)], 0))
        assert topic.ledger.stored.noted() == {INDEX_PROPERTY: "6"}
        following = EntryStamps(has_time=False, has_index=True)
        await following.follow(topic.ledger)
        assert following.index == 6

    with_topic(scenario)


def test_entries_from_before_indexing_was_on_count_as_a_message_each() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await topic.publish("a", "b", "c")
        stamps = EntryStamps(has_time=False, has_index=True)
        await stamps.follow(topic.ledger)
        assert stamps.index == 2

    with_topic(scenario)


def test_without_an_index_the_log_is_not_asked() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        await topic.publish("a")
        stamps, before = EntryStamps(has_time=True, has_index=False), topic.ledger.stored.noted
        await stamps.follow(topic.ledger)
        assert (stamps.index, topic.ledger.stored.noted) == (-1, before)

    with_topic(scenario)

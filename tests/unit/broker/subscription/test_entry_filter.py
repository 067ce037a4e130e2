"""What of the entries that were read is for consumers, and under which key."""

from __future__ import annotations

from base64 import b64encode

import pytest

from geminga.broker.core.dispatch.hash_ranges import sticky_hash_of
from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
from geminga.broker.subscription.entry_filter import NONE_KEY, count_bits, filter_entries, sticky_key
from geminga.managed_ledger import Entry
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.keys import murmur3_32
from geminga.wire.pulsar.metadata import peek_metadata
from support.worlds.subscriptions import settle, with_topic


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"ordering_key": b"o", "partition_key": "p"}, b"o"),
        ({"partition_key": "schl\u00fcssel"}, "schl\u00fcssel".encode()),
        ({"partition_key": b64encode(b"\x00\xff").decode(), "partition_key_b64_encoded": True}, b"\x00\xff"),
        ({"partition_key": "no base64", "partition_key_b64_encoded": True}, b"no base64"),
        ({}, b"producer-7"),
    ],
)
def test_sticky_key_goes_by_ordering_partition_then_producer(fields, key):
    metadata = pb.MessageMetadata(producer_name="producer", sequence_id=7, publish_time=1, **fields)
    assert sticky_key(metadata) == key


def test_sticky_key_of_nothing_is_none_key():
    assert sticky_key(pb.MessageMetadata()) == NONE_KEY


def test_count_bits_takes_words_as_signed():
    assert count_bits([-1, 1]) == 65
    assert count_bits([]) == 0


def test_filter_leaves_out_markers_and_damaged_entries_and_counts_what_is_left():
    async def scenario(topic):
        subscription = await topic.create_subscription("sub")
        await topic.publish("a", key="k")
        marker = (await topic.publish("marker", marker_type=10))[0]
        batch = (await topic.publish("b", batch=8, key="k"))[0]
        subscription.cursor.acknowledge([batch], [[0b11]])
        await settle()
        entries = await topic.ledger.reader.read_range(topic.ledger.ledgers.first_position, 10, 1 << 20)
        damaged = Entry(marker.ledger_id, 99, b"\x0e\x01")
        unwanted = []
        candidates = filter_entries(
            [*entries, damaged], subscription.cursor, sticky_hash_of=sticky_hash_of, delayed=None, unwanted=unwanted
        )
        assert unwanted == [marker, damaged.position]
        assert [c.message_count for c in candidates] == [1, 2]
        assert [c.ack_set for c in candidates] == [None, (0b11,)]
        assert {c.sticky_hash for c in candidates} == {sticky_hash_of(murmur3_32(b"k"))}

    with_topic(scenario)


@pytest.mark.uncompiled("a function that counts")
def test_what_one_subscription_found_out_is_not_parsed_for_the_next(monkeypatch):
    parsed = []

    def counted(data):
        parsed.append(data)
        return peek_metadata(data)

    monkeypatch.setattr("geminga.broker.subscription.entry_filter.peek_metadata", counted)

    async def scenario(topic):
        first, second = [await topic.create_subscription(name) for name in ("first", "second")]
        await topic.publish("a")
        await topic.publish("marker", marker_type=10)
        batch = (await topic.publish("b", batch=8))[0]
        await topic.publish("later", deliver_at_time=1 << 60)
        await settle()
        entries = await topic.ledger.reader.read_range(topic.ledger.ledgers.first_position, 10, 1 << 20)
        recent = RecentCandidates()

        def filtered(subscription, **options):
            unwanted = []
            found = filter_entries(
                entries,
                subscription.cursor,
                **{"sticky_hash_of": None, "delayed": None, "recent": recent, **options},
                unwanted=unwanted,
            )
            return [
                (c.position, c.data, c.message_count, c.sticky_hash, c.ack_set, c.is_chunk) for c in found
            ], unwanted

        alone = filtered(first, recent=None)
        parsed.clear()
        assert filtered(first) == alone
        assert len(parsed) == 4
        assert filtered(second) == alone
        assert len(parsed) == 6, "the marker and the delayed one are looked at by everybody"
        second.cursor.acknowledge([batch], [[0b11]])
        assert [fields[2] for fields in filtered(second)[0]] == [1, 2, 1]
        assert filtered(first) == alone, "what one has acknowledged is not the other's"
        by_key = filtered(second, sticky_hash_of=sticky_hash_of)[0]
        assert all(fields[3] for fields in by_key)
        assert filtered(first) == alone

    with_topic(scenario)

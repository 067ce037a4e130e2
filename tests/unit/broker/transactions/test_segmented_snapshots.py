"""A topic whose snapshots another broker left in segments: nothing of its transactions is shown that must not be."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, split_entry
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, encode_version
from support.clusters.transacting import producing, transacting
from support.house.source_tree import ROOT
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

NAME = TopicName.parse(TOPIC)
SINGLE, SEGMENTS, INDEXES = (
    TopicName.parse(f"persistent://public/default/__transaction_buffer_snapshot{which}")
    for which in ("", "_segments", "_indexes")
)
SCHEMAS: dict[TopicName, str] = dict(
    zip(
        (SEGMENTS, INDEXES),
        (
            json.loads((ROOT / "tests/samples/transaction-records-4.2.4.json").read_text(encoding="utf-8"))["schemas"][
                each
            ]
            for each in ("segments", "indexes")
        ),
        strict=True,
    )
)


async def stored(world: BrokerWorld, name: TopicName) -> PersistentTopic:
    topic = await world.broker.registry.get(name, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def append(world: BrokerWorld, name: TopicName, key: str, value: dict[str, Any] | None) -> Position:
    """A message as Pulsar's broker writes it; None: the key has no value any more."""
    topic = await stored(world, name)
    metadata = pb.MessageMetadata(producer_name="standalone-0-1", sequence_id=1, publish_time=1, partition_key=key)
    out = io.BytesIO()
    if value is None:
        metadata.null_value = True
    else:
        definition = SCHEMAS[name].encode()
        info = SchemaInfo("x", SchemaType.AVRO, definition)
        registry = world.broker.schemas.registry
        version = await registry.put_if_absent(schema_id_of(name), info, Strategy.ALWAYS_COMPATIBLE)
        metadata.schema_version = encode_version(version)
        schemaless_writer(out, parse_schema(json.loads(definition)), value)
    results: list[AppendResult] = []
    topic.ledger.append([encode_entry(metadata, out.getvalue())], results.append)
    while not results:
        await wait_ms(1)
    assert results[0].error is None
    return Position(results[0].ledger_id, results[0].first_entry_id)


def ids(aborts: list[TxnId]) -> list[dict[str, int]]:
    return [{"mostSigBits": each.coordinator, "leastSigBits": each.number} for each in aborts]


async def append_segment(world: BrokerWorld, number: int, marker: Position, aborts: list[TxnId]) -> dict[str, int]:
    """What the index tells of it."""
    place = await append(
        world,
        SEGMENTS,
        f"multiple-{number}-{TOPIC}",
        {
            "topicName": TOPIC,
            "sequenceId": number,
            "persistentPositionLedgerId": marker.ledger_id,
            "persistentPositionEntryId": marker.entry_id,
            "aborts": ids(aborts),
        },
    )
    return {
        "sequenceID": number,
        "abortedMarkLedgerID": marker.ledger_id,
        "abortedMarkEntryID": marker.entry_id,
        "segmentLedgerID": place.ledger_id,
        "segmentEntryID": place.entry_id,
    }


async def append_index(
    world: BrokerWorld, position: Position, places: list[dict[str, int]], aborts: list[TxnId]
) -> None:
    rest = {
        "maxReadPositionLedgerId": position.ledger_id,
        "maxReadPositionEntryId": position.entry_id,
        "aborts": ids(aborts),
    }
    await append(world, INDEXES, TOPIC, {"topicName": TOPIC, "indexList": places, "snapshot": rest})


async def publish_five(world: BrokerWorld) -> tuple[list[TxnId], list[Position]]:
    """0, 1 and 3 are aborted, 2 is committed, 4 stays open; and where their ends lie."""
    writer = await producing(world)
    assert not (await writer.connect()).HasField("error")
    txns, markers = [], []
    topic = await stored(world, NAME)
    for number in range(5):
        txn_id = await writer.begin(timeout_ms=10_000_000)
        txns.append(txn_id)
        assert not (await writer.add_partition(txn_id)).HasField("error")
        await writer.publish(b"%d" % number, txn_id)
        if number < 4:
            await writer.finish(txn_id, commit=number == 2)
            markers.append(topic.ledger.extent.last_confirmed_position)
    return txns, markers


async def shown(world: BrokerWorld) -> list[bytes]:
    reader = await transacting(world)
    await reader.client.subscribe(durable=False)
    await wait_ms(50)
    return reader.payloads()


def run(scenario: Callable[[BrokerWorld], Awaitable[None]]) -> None:
    run_with_broker(scenario, transaction_coordinator_enabled=True, keep_alive_interval_s=1_000_000)


async def only_in_segments(world: BrokerWorld) -> None:
    """As a broker leaves it that never wrote in one piece: without those of the last unload, too."""
    await world.broker.registry.unload(NAME)
    await append(world, SINGLE, TOPIC, None)


@pytest.mark.parametrize("is_recent", [False, True])
def test_what_is_aborted_or_open_is_not_shown(is_recent: bool) -> None:
    """``is_recent``: the index is of the last end, else of the second."""

    async def scenario(world: BrokerWorld) -> None:
        txns, markers = await publish_five(world)
        await only_in_segments(world)
        first = await append_segment(world, 0, markers[0], [txns[0]])
        second = await append_segment(world, 1, markers[1], [txns[1]])
        if is_recent:
            await append_index(world, markers[3], [first, second], [txns[3]])
        else:
            await append_index(world, markers[1], [first], [txns[1]])
        await world.restart()
        assert await shown(world) == [b"2"]
        topic = await stored(world, NAME)
        buffer = topic.transaction_buffer
        assert buffer is not None
        assert buffer.state is not None
        assert {*buffer.state.aborted} == {txns[0], txns[1], txns[3]}
        assert {*buffer.state.open} == {txns[4]}
        # What is written from now on is in one piece, and counts, for it is of later.
        writer = await transacting(world)
        await writer.finish(txns[4], commit=True)
        await world.broker.registry.unload(NAME)
        await world.restart()
        assert await shown(world) == [b"2", b"4"]
        found = await world.broker.transactions.snapshots.find(TOPIC)
        assert found is not None
        assert found.position > markers[3]
        assert {txn_id for txn_id, _ in found.aborts} == {txns[0], txns[1], txns[3]}

    run(scenario)


@pytest.mark.parametrize("damage", ["no segment", "no index", "another schema"])
def test_what_can_not_be_read_means_that_the_topic_is_read_as_a_whole(damage: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        txns, markers = await publish_five(world)
        await only_in_segments(world)
        place = await append_segment(world, 0, markers[1], [txns[0], txns[1]])
        if damage == "no segment":
            place["segmentEntryID"] += 7
        await append_index(world, markers[1], [place], [])
        if damage != "no segment":
            topic = await stored(world, INDEXES)
            results: list[AppendResult] = []
            metadata = pb.MessageMetadata(producer_name="x", sequence_id=1, publish_time=1, partition_key=TOPIC)
            if damage == "another schema":
                metadata.schema_version = encode_version(77)
            topic.ledger.append([encode_entry(metadata, b"nonsense")], results.append)
            while not results:
                await wait_ms(1)
        await world.restart()
        found = await world.broker.transactions.snapshots.find(TOPIC)
        assert found is not None
        assert found.position == EARLIEST
        assert await shown(world) == [b"2"]

    run(scenario)


def test_they_go_with_their_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        txns, markers = await publish_five(world)
        await only_in_segments(world)
        places = [await append_segment(world, number, markers[1], [txns[number]]) for number in (0, 1)]
        await append_index(world, markers[1], places, [])
        await world.restart()
        await world.broker.registry.delete(NAME)
        for name, keys in ((SEGMENTS, [f"multiple-{n}-{TOPIC}" for n in (0, 1)]), (INDEXES, [TOPIC])):
            topic = await stored(world, name)
            *_, last = entries = await topic.ledger.reader.read_range(topic.ledger.ledgers.first_position, 100, 1 << 20)
            assert last is entries[-1]
            removed = []
            for entry in entries:
                metadata, _ = split_entry(entry.data)
                assert metadata is not None
                if metadata.null_value:
                    removed.append(metadata.partition_key)
            assert removed == keys
        await world.restart()
        assert await world.broker.transactions.snapshots.find(TOPIC) is None
        assert await world.broker.registry.list("public/default") == []

    run(scenario)


def test_they_are_read_anew_when_their_topic_changes_hands() -> None:
    async def scenario(world: BrokerWorld) -> None:
        snapshots = world.broker.transactions.snapshots
        assert await snapshots.find(TOPIC) is None
        await append_index(world, Position(3, 4), [], [])
        assert await snapshots.find(TOPIC) is None, "nobody else writes there while it is here"
        snapshots.given(lambda name: name == NAME)
        assert await snapshots.find(TOPIC) is None
        snapshots.given(lambda name: name == SINGLE)
        found = await snapshots.find(TOPIC)
        assert found is not None
        assert found.position == Position(3, 4)
        await append(world, INDEXES, TOPIC, None)
        await snapshots.taken(lambda name: name == SINGLE)
        assert await snapshots.find(TOPIC) is None

    run(scenario)

"""A topic is copied to another cluster: in order, from its cursor on, over every kind of failure."""

from __future__ import annotations

import asyncio
import logging

import pytest

from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.geo import replicator as module
from geminga.broker.geo.part import GeoReplication
from geminga.broker.geo.ports import AwayError
from geminga.broker.geo.replicator import BACKOFF_MAX_MS, State, number_of
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.statistics.replication import replication_stats
from geminga.model.errors import StorageError, UnavailableError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import SOURCE_POSITION
from support.house.waiting import turns
from support.worlds.broker_world import BrokerWorld, Client, run_with_broker, send_frame
from support.worlds.other_cluster import OtherCluster, join, replicate
from support.worlds.policy_levels import seconds

CURSOR = "pulsar.repl.west"


async def copied(world: BrokerWorld, other: OtherCluster | None = None) -> tuple[OtherCluster, Client]:
    """A topic whose messages go to ``west``, and a producer of it."""
    other = join(world, other)
    await replicate(world, "standalone", "west")
    client = await world.publisher(producer_name="producer")
    return other, client


def replicator_of(world: BrokerWorld) -> module.Replicator:
    part = world.topic.parts.find(GeoReplication)
    assert part is not None
    found = part.replicators["west"]
    assert isinstance(found, module.Replicator)
    return found


async def publish(client: Client, *numbers: int) -> list[bytes]:
    payloads = [b"%d" % number for number in numbers]
    for number, payload in zip(numbers, payloads, strict=True):
        await client.publish(number, payload)
    return payloads


def test_messages_are_copied_in_order_and_the_cursor_follows() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        sent = await publish(client, *range(250))
        await seconds(0.1)
        assert other.payloads == sent
        topic, replicator = world.topic, replicator_of(world)
        assert topic.ledger.cursors[CURSOR].mark_delete_position == topic.last_position
        first = other.stored[0][0]
        assert (first.producer_name, first.sequence_id, first.replicated_from) == ("producer", 0, "standalone")
        assert {pair.key: pair.value for pair in first.properties}[SOURCE_POSITION] == "0:0"
        assert (replicator.backlog, replicator.totals()[0], replicator.state) == (0, 250, "copying")
        assert topic.subscriptions == {}

    run_with_broker(scenario)


def test_what_came_from_another_cluster_or_is_not_meant_for_it_is_passed_over() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        for number, fields in enumerate(
            [{}, {"replicated_from": "west"}, {"replicate_to": ["north"]}, {"replicate_to": ["north", "west"]}, {}]
        ):
            client.send_bytes(send_frame(number, b"%d" % number, metadata=fields))
        client.send_bytes(send_frame(5, b"5", metadata={"replicate_to": ["__local__"]}))
        for _ in range(6):
            await client.receipt()
        await seconds(0.1)
        assert other.payloads == [b"0", b"3", b"4"]
        assert replicator_of(world).backlog == 0

    run_with_broker(scenario)


def test_what_is_not_meant_for_a_cluster_is_no_backlog_while_it_is_away() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        other.away = UnavailableError("no route")
        await seconds(0.1)
        await world.broker.registry.unload(world.topic.name)
        await client.create_producer(producer_name="producer", epoch=1)
        for number in range(3 * module.READ_ENTRIES):
            client.send_bytes(send_frame(number, b"came", metadata={"replicated_from": "west"}))
            await client.receipt()
        await publish(client, 1000)
        client.send_bytes(send_frame(1001, b"came", metadata={"replicated_from": "west"}))
        await client.receipt()
        # All of it with the next try.
        await seconds(0.15)
        assert replicator_of(world).backlog == 2
        other.away = None
        await seconds(60)
        assert (other.payloads, replicator_of(world).backlog) == ([b"1000"], 0)

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_a_cluster_that_is_back_is_copied_to_at_once_however_long_the_pause() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        back = asyncio.get_running_loop().create_future()
        other.away = AwayError("no route", back)
        await seconds(0.1)
        await world.broker.registry.unload(world.topic.name)
        await client.create_producer(producer_name="producer", epoch=1)
        sent = await publish(client, 0, 1)
        await seconds(BACKOFF_MAX_MS / 1000)
        assert (replicator_of(world).backlog, replicator_of(world).reason) == (2, "no route")
        # The next try of its own is a minute away.
        tries, other.away = other.tries, None
        await seconds(0.5)
        assert (other.tries, other.payloads) == (tries, [])
        back.set_result(None)
        await seconds(0.1)
        assert (other.payloads, replicator_of(world).backlog) == (sent, 0)

    run_with_broker(scenario, keep_alive_interval_s=100_000)


@pytest.mark.parametrize("kind", ["restart", "unload"])
def test_it_goes_on_where_it_was(kind: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        sent = await publish(client, *range(5))
        await seconds(0.1)
        other.away, other.close_ms = UnavailableError("no route"), 200
        if kind == "restart":
            await world.restart()
            join(world, other)
        else:
            await world.broker.registry.unload(world.topic.name)
        assert other.links == 0
        client = await world.publisher(producer_name="producer", epoch=1)
        sent += await publish(client, *range(5, 9))
        await seconds(1)
        assert replicator_of(world).backlog == 4
        other.away = None
        await seconds(5)
        assert other.payloads == sent

    run_with_broker(scenario)


def test_a_cluster_that_is_away_is_tried_later_each_time_and_the_reason_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        await seconds(0.1)
        tries = other.tries
        other.away = UnavailableError("no route to west")
        other.refused.add(b"0")
        await publish(client, 0)
        with caplog.at_level(logging.WARNING, logger="geminga.broker.geo.replicator"):
            await seconds(600)
        # 0.1 + 0.2 + ... + 51.2 s, and then one a minute.
        assert 15 <= other.tries - tries <= 22
        replicator = replicator_of(world)
        assert (replicator.state, replicator.reason) == (State.WAITING.value, "no route to west")
        told = [record.message for record in caplog.records if "no route" in record.message]
        assert 8 <= len(told) <= 11
        assert "is not copied to cluster west now: no route to west" in told[0]
        other.away = None
        other.refused.clear()
        await seconds(BACKOFF_MAX_MS / 1000 + 1)
        assert other.payloads == [b"0"]
        assert (replicator.reason, replicator.is_connected) == ("", True)

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_nothing_overtakes_what_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        other.refused.add(b"3")
        sent = await publish(client, *range(8))
        await seconds(30)
        assert other.payloads == sent[:3]
        assert replicator_of(world).backlog == 5
        assert "refused 3" in replicator_of(world).reason
        other.refused.clear()
        await seconds(60)
        assert other.payloads == sent
        assert replicator_of(world).backlog == 0

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_what_can_not_be_sent_keeps_all_behind_it_and_is_tried_again() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        other.unsendable.add(b"1")
        for number in range(3):
            client.send_message(number, b"%d" % number)
        await seconds(5)
        assert other.payloads == [b"0"]
        assert (replicator_of(world).backlog, replicator_of(world).reason) == (2, "1 is too large")
        other.unsendable.clear()
        await seconds(60)
        assert other.payloads == [b"0", b"1", b"2"]

    run_with_broker(scenario)


def test_the_delay_is_the_age_of_the_oldest_on_its_way() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        other.is_silent = True
        now_ms = world.runtime.clock.wall_ms()
        client.send_bytes(send_frame(0, b"0", metadata={"publish_time": now_ms}))
        await seconds(3)
        assert 2.5 < replicator_of(world).delay_s < 3.5

    run_with_broker(scenario)


def test_what_is_stored_behind_a_refused_message_does_not_count() -> None:
    """Another make of broker may take it; it is sent again with the refused one before it."""

    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        other.overtakes = True
        other.refused.add(b"1")
        for number in range(3):
            client.send_message(number, b"%d" % number)
        await seconds(0.05)
        assert other.payloads == [b"0", b"2"]
        assert replicator_of(world).backlog == 2

    run_with_broker(scenario)


def test_a_read_that_fails_is_tried_again() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        await publish(client, 0)
        await seconds(0.1)
        bookie = world.bookie
        assert isinstance(bookie, MemoryBookie)
        bookie.read_error = StorageError("the disk does not answer")
        other.away = UnavailableError("no route")
        await world.broker.registry.unload(world.topic.name)
        await client.create_producer(producer_name="producer", epoch=1)
        await publish(client, 1)
        # What was published before the topic was loaded again is in no cache.
        await world.broker.registry.unload(world.topic.name)
        other.away = None
        await client.create_producer(producer_name="producer", epoch=2)
        await seconds(20)
        assert other.payloads == [b"0"]
        assert "the disk does not answer" in replicator_of(world).reason
        bookie.read_error = None
        await publish(client, 2)
        await seconds(60)
        assert (other.payloads, replicator_of(world).backlog) == ([b"0", b"1", b"2"], 0)

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_answers_of_a_link_that_ended_count_for_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        other.is_silent = True
        await publish(client, 0, 1)
        await seconds(0.1)
        assert other.payloads == [b"0", b"1"]
        old = other.topics[-1]
        other.refused.add(b"2")
        await publish(client, 2)
        await seconds(0.05)
        assert old.is_closed
        other.refused.clear()
        await seconds(0.2)
        assert other.payloads == [b"0", b"1", b"0", b"1", b"2"]
        for done in old.waiting:
            done(1, None)
        await turns()
        assert replicator_of(world).backlog == 3

    run_with_broker(scenario)


def test_no_more_is_on_its_way_than_may_be() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = OtherCluster()
        other.entries_max, other.is_silent = 10, True
        _, client = await copied(world, other)
        sent = await publish(client, *range(400))
        await seconds(1)
        # The bound is looked at before each read.
        assert 10 <= len(other.stored) <= 10 + module.READ_ENTRIES
        assert replicator_of(world).delay_s > 0
        other.answer()
        await seconds(1)
        assert other.payloads == sent
        assert replicator_of(world).delay_s == 0

    run_with_broker(scenario)


def test_a_schema_version_that_is_made_up_travels_as_it_is() -> None:
    """As with Pulsar: one message of whoever may produce would end the copying of a topic for ever."""

    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        versions = [b"", b"\0" * 7 + b"\5", b"no number", b"\xff" * 8, b""]
        for number, version in enumerate(versions):
            client.send_bytes(
                send_frame(number, b"%d" % number, metadata={"schema_version": version} if version else {})
            )
        await seconds(2)
        assert [metadata.schema_version for metadata, _ in other.stored] == versions
        assert (replicator_of(world).backlog, replicator_of(world).reason) == (0, "")

    run_with_broker(scenario)


def test_the_mark_of_a_deleted_schema_is_no_schema_to_bring_along() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        name = world.topic.name
        text = pb.Schema(name="text", type=pb.Schema.String, schema_data=b"")
        await client.create_producer(producer_id=2, producer_name="other", schema=text)
        mark = await world.broker.schemas.registry.mark_deleted(schema_id_of(name))
        assert mark == 1
        other.refused_schemas.add("NONE")
        client.send_bytes(send_frame(0, b"0", metadata={"schema_version": mark.to_bytes(8, "big")}))
        await seconds(2)
        assert [metadata.schema_version for metadata, _ in other.stored] == [mark.to_bytes(8, "big")]

    run_with_broker(scenario)


def test_what_waits_for_a_cluster_that_is_away_has_an_age() -> None:
    """A backlog without a delay reads as if nothing was missing over there."""

    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        other.away = UnavailableError("no route")
        await world.broker.registry.unload(world.topic.name)
        await client.create_producer(producer_name="producer", epoch=1)
        now_ms = world.topic.services.runtime.clock.wall_ms()
        for number, fields in enumerate([{"replicated_from": "west"}, {"publish_time": now_ms}, {}]):
            client.send_bytes(send_frame(number, b"%d" % number, metadata=fields))
            await client.receipt()
        await seconds(100)
        assert 99 < replicator_of(world).delay_s < 101
        assert (replicator_of(world).backlog, replicator_of(world).is_connected) == (2, False)
        other.away = None
        await seconds(60)
        assert (replicator_of(world).backlog, replicator_of(world).delay_s) == (0, 0)

    run_with_broker(scenario, keep_alive_interval_s=100_000)


def test_a_connection_that_is_lost_is_told_while_the_link_is_made_again() -> None:
    """Answers are waited for, for as long as one may take: meanwhile it is not connected, and says why."""

    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        await publish(client, 0)
        await seconds(0.1)
        replicator = replicator_of(world)
        assert (replicator.is_connected, replicator.reason) == (True, "")
        other.is_lost = True
        stats = replication_stats(world.topic, world.runtime.clock)["west"]
        assert stats["connected"] is False
        assert stats["disconnectedReason"] == "the connection to cluster west is lost: it is made again"
        other.is_lost = False
        assert (replicator.is_connected, replicator.reason) == (True, "")

    run_with_broker(scenario)


def test_schemas_have_the_versions_of_the_other_cluster() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        await replicate(world, "standalone", "west")
        client = await world.client()
        schema = pb.Schema(name="text", type=pb.Schema.String, schema_data=b"")
        success = await client.create_producer(producer_name="producer", schema=schema)
        other.refused_schemas.add("STRING")
        client.send_bytes(send_frame(0, b"0", metadata={"schema_version": success.schema_version}))
        await seconds(2)
        reason = replicator_of(world).reason
        assert reason == "cluster west does not take the schema of the message at 1:0: Incompatible schema"
        other.refused_schemas.clear()
        await seconds(10)
        assert [metadata.schema_version for metadata, _ in other.stored] == [b"STRING of link %d" % len(other.topics)]
        # What a client writes behind a version says nothing, and is not kept.
        version = success.schema_version + b"b" * 1000
        client.send_bytes(send_frame(1, b"1", metadata={"schema_version": version}))
        await seconds(2)
        assert [metadata.schema_version for metadata, _ in other.stored] == [
            b"STRING of link %d" % len(other.topics)
        ] * 2
        assert len(replicator_of(world)._versions) == 1
        # It may be made anew over there: what is known of one link says nothing of the next.
        other.refused.add(b"2")
        client.send_bytes(send_frame(2, b"2", metadata={"schema_version": success.schema_version}))
        await seconds(2)
        other.refused.clear()
        await seconds(60)
        assert other.stored[-1][0].schema_version == b"STRING of link %d" % len(other.topics)

    run_with_broker(scenario)


def test_an_entry_that_can_not_be_parsed_stops_the_copying_before_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await copied(world)
        await publish(client, 0)
        stored: list[object] = []
        world.topic.ledger.append([b"\x00\x00\xff\xff"], stored.append)
        await publish(client, 1)
        await seconds(5)
        assert other.payloads == [b"0"]
        assert replicator_of(world).reason == "the entry at 0:1 can not be parsed"

    run_with_broker(scenario)


@pytest.mark.parametrize(("version", "number"), [(b"\0" * 7 + b"\7", 7), (b"abc", -1), (b"", -1)])
def test_versions_that_are_no_numbers_name_no_schema(version: bytes, number: int) -> None:
    assert number_of(version) == number


def test_one_that_was_stopped_is_told_of_nothing_more() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await copied(world)
        tail, replicator = world.topic.ledger.tail, replicator_of(world)
        before = tail.listener_count
        ending = replicator.stop()
        assert tail.listener_count == before - 1
        if ending is not None:
            await asyncio.wait([ending])

    run_with_broker(scenario)

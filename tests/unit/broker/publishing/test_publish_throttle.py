"""Publish rates: exact counts in virtual time, order kept, nothing lost, and nobody held longer than the rate says."""

from __future__ import annotations

import pytest

from geminga.broker.connection.core.read_gate import PauseReason
from geminga.model.topic_name import TopicName
from geminga.runtime import SystemRng
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import split_entry
from support.house.weekly_sample import sampled
from support.processes.rated_clients import EagerClient, receipts
from support.worlds.broker_world import BrokerWorld, Client, send_frame
from support.worlds.policy_levels import NAME, run_quietly, seconds, set_namespace, set_topic, topic_of

Type = pb.BaseCommand
RATES = [(0, 0), (5, 0), (100, 0), (0, 2000), (1000, 1), (3, 10**9)]
RATE = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 0}


async def eager(world: BrokerWorld, count: int, *, producer_id: int = 1, topic: str = str(NAME), **fields) -> Client:
    """A client that sends ``count`` messages as fast as it is read."""
    client = await world.publisher(topic, producer_id)
    EagerClient(client).start([send_frame(n, producer_id=producer_id, **fields) for n in range(count)])
    await seconds(0)
    return client


async def next_text(client: Client) -> bytes:
    """Payload of the next message."""
    _, data = await client.expect_with_payload(Type.MESSAGE)
    return data[split_entry(data)[1] :]


@pytest.mark.parametrize("topic", [str(NAME), "non-persistent://public/default/t"])
def test_publish_rate_takes_one_burst_and_then_exactly_the_rate(topic) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await eager(world, 1000, topic=topic)
        await seconds(0.01)
        got = receipts(client)
        assert got == list(range(10)), "one period's tokens at once"
        for _ in range(20):
            await seconds(1)
            new = receipts(client)
            assert 9 <= len(new) <= 11
            got += new
        assert got == list(range(len(got))), "in order, none lost"
        assert 208 <= len(got) <= 211
        found = world.broker.topics[topic]
        assert found.throttles.throttling is not None
        assert found.throttles.publish_limited_times > 0
        # The client, not read, is not taken for dead.
        assert await client.connection.check_liveness()

    run_quietly(scenario, topic_publish_rate_messages=10)


def test_publish_rate_is_of_all_producers_of_a_topic_together_and_fair() -> None:
    async def scenario(world: BrokerWorld) -> None:
        clients = [await eager(world, 500, producer_id=n) for n in range(4)]
        await seconds(30)
        counts = [len(receipts(client)) for client in clients]
        assert 300 <= sum(counts) <= 320
        assert min(counts) >= 60, counts

    run_quietly(scenario, topic_publish_rate_messages=10)


def test_broker_rate_holds_all_topics_together_but_not_its_own_topics() -> None:
    async def scenario(world: BrokerWorld) -> None:
        clients = [await eager(world, 500, topic=f"persistent://public/default/t{n}") for n in range(2)]
        await seconds(10)
        assert 105 <= sum(len(receipts(client)) for client in clients) <= 112
        # What it keeps itself is no client's publish.
        await set_topic(world, "maxProducerPerTopic", 7)

    run_quietly(scenario, publish_rate_messages=10)


def test_other_producer_of_the_connection_shares_its_fate_and_another_connection_does_not() -> None:
    async def scenario(world: BrokerWorld) -> None:
        shared, own = await world.client(), await world.client()
        await shared.create_producer(producer_id=1)
        await shared.create_producer("persistent://public/default/free", producer_id=2)
        await own.create_producer("persistent://public/default/free", producer_id=3)
        await set_topic(world, "publishRate", {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1})
        EagerClient(shared).start([send_frame(n, producer_id=1 + n % 2) for n in range(10)])
        EagerClient(own).start([send_frame(n, producer_id=3) for n in range(1000)])
        await seconds(2.5)
        assert len(receipts(own)) == 1000
        assert len(receipts(shared)) in (5, 6)
        await seconds(60)
        assert len(receipts(shared)) in (4, 5)

    run_quietly(scenario)


def test_batches_count_by_their_messages_and_pass_whole() -> None:
    """One message a second and batches of a thousand: each batch passes, and is paid for."""

    async def scenario(world: BrokerWorld) -> None:
        client = await eager(world, 3, num_messages=1000, metadata={"num_messages_in_batch": 1000})
        await seconds(1)
        assert receipts(client) == [0]
        await seconds(995)
        assert receipts(client) == []
        await seconds(10)
        assert receipts(client) == [1]
        await seconds(1000)
        assert receipts(client) == [2]
        assert client.connection.gate.reasons == PauseReason.PUBLISH_RATE

    run_quietly(scenario, topic_publish_rate_messages=1)


def test_byte_rate_smaller_than_a_message_slows_down_and_stops_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await eager(world, 5, payload=bytes(1000))
        size = len(send_frame(0, bytes(1000)))
        for _ in range(5):
            await seconds(size / 100)
            got = receipts(client)
            assert len(got) <= 2
        await seconds(size / 100)
        assert client.connection.gate.reasons in (PauseReason.PUBLISH_RATE, PauseReason.NONE)
        assert world.broker.topics[str(NAME)].publishing.messages_in == 5

    run_quietly(scenario, topic_publish_rate_bytes=100)


def test_changed_rate_holds_at_once_and_without_one_everybody_goes_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await eager(world, 5000, num_messages=1)
        await seconds(5)
        assert 58 <= len(receipts(client)) <= 61
        await set_topic(world, "publishRate", {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": 0})
        await seconds(5)
        assert 590 <= len(receipts(client)) <= 605
        await set_topic(world, "publishRate", {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": 0})
        await seconds(10)
        assert len(receipts(client)) <= 12
        await set_topic(world, "publishRate", None)
        await seconds(0.1)
        assert 10 <= len(receipts(client)) <= 12, "the namespace's again"
        await set_namespace(world, "publishMaxMessageRate", {})
        await seconds(1)
        topic = await topic_of(world)
        assert topic.publishing.messages_in == 5000
        assert topic.throttles.publish == ()
        assert client.connection.gate.reasons == PauseReason.NONE

    async def with_namespace(world: BrokerWorld) -> None:
        await set_namespace(world, "publishMaxMessageRate", {"standalone": RATE, "other": {}})
        await scenario(world)

    run_quietly(with_namespace)


def test_rate_holds_after_a_restart_and_one_of_zero_means_the_next_level() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await topic_of(world)
        await set_namespace(world, "publishMaxMessageRate", {"standalone": RATE})
        await world.restart()
        client = await eager(world, 1000)
        await seconds(10)
        assert 105 <= len(receipts(client)) <= 112
        await set_topic(world, "publishRate", {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": -1})
        await seconds(10)
        assert 98 <= len(receipts(client)) <= 102
        await world.broker.registry.unload(NAME)
        client = await eager(world, 1000)
        await seconds(10)
        assert 105 <= len(receipts(client)) <= 112
        await set_topic(world, "publishRate", {"publishThrottlingRateInMsg": 2, "publishThrottlingRateInByte": 0})
        await world.restart()
        client = await eager(world, 100)
        await seconds(10)
        assert 20 <= len(receipts(client)) <= 23, "from the events of the namespace"

    run_quietly(scenario)


def test_clients_that_leave_while_they_wait_leave_nothing_behind() -> None:
    async def scenario(world: BrokerWorld) -> None:
        clients = [await eager(world, 100, producer_id=n) for n in range(3)]
        await seconds(5)
        topic = await topic_of(world)
        (throttle,) = topic.throttles.publish
        stored = topic.publishing.messages_in
        assert throttle.waiting_count == 3
        clients[0].lose()
        await seconds(0.1)
        assert throttle.waiting_count == 2
        # What it had sent and the broker had read is stored: it was never refused.
        assert topic.publishing.messages_in >= stored
        await world.broker.registry.unload(NAME)
        await seconds(0.1)
        assert throttle.waiting_count == 0
        for client in clients[1:]:
            assert client.connection.gate.reasons == PauseReason.NONE
            await client.expect(Type.CLOSE_PRODUCER)
            await client.create_producer(producer_id=9)
            break

    run_quietly(scenario, topic_publish_rate_messages=5)


def test_client_that_waits_for_minutes_is_pinged_and_not_taken_for_dead() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await eager(world, 3, num_messages=1000, metadata={"num_messages_in_batch": 1000})
        await seconds(0.1)
        assert receipts(client) == [0]
        await seconds(900)
        pings = [command for command, _ in client.received if command.type == Type.PING]
        assert len(pings) == 30, "so that the client does not take the broker for dead"
        assert not client.is_closed
        await seconds(100)
        assert not client.is_closed
        assert receipts(client) == [1]

    run_quietly(scenario, topic_publish_rate_messages=1, keep_alive_interval_s=30)


@pytest.mark.parametrize("seed", sampled("publish throttle", range(8), 3))
def test_whatever_rates_come_and_go_every_message_is_stored_once_and_in_order(seed) -> None:
    async def scenario(world: BrokerWorld) -> None:
        rng = SystemRng(seed)
        clients = [await world.client() for _ in range(3)]
        feeds = []
        for number, client in enumerate(clients):
            for producer_id in range(2):
                await client.create_producer(producer_id=producer_id, producer_name=f"p{number}{producer_id}")
            frames = [
                send_frame(n // 2, b"%d-%d-%d" % (number, n % 2, n // 2), n % 2, num_messages=(1, 1, 20)[rng.below(3)])
                for n in range(400)
            ]
            feeds.append(EagerClient(client))
            feeds[-1].start(frames)
        for _ in range(3 + rng.below(5)):
            messages, size = RATES[rng.below(len(RATES))]
            rate = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": size}
            await set_namespace(world, "publishMaxMessageRate", {"standalone": rate})
            await seconds(rng.below(5000) / 1000)
        await set_namespace(world, "publishMaxMessageRate", {})
        await seconds(1)
        topic = await topic_of(world)
        assert [feed.is_done for feed in feeds] == [True] * 3
        assert [client.connection.gate.reasons for client in clients] == [PauseReason.NONE] * 3
        reader = await world.subscriber(permits=10_000)
        found: dict[bytes, list[int]] = {}
        for _ in range(1200):
            number, producer_id, n = (await next_text(reader)).split(b"-")
            found.setdefault(number + producer_id, []).append(int(n))
        assert topic.publishing.messages_in >= 1200
        assert sorted(found) == [b"00", b"01", b"10", b"11", b"20", b"21"]
        assert all(numbers == list(range(200)) for numbers in found.values())

    run_quietly(scenario)


def test_what_was_read_of_a_lost_connection_is_stored_in_order() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.subscribe(consumer_id=2)
        other = await world.client()
        # One read with a hundred messages, then the end.
        client.send_bytes(b"".join(send_frame(n, b"%d" % n) for n in range(100)))
        client.lose()
        await seconds(1)
        topic = await topic_of(world)
        assert topic.publishing.messages_in == 100
        await other.subscribe(subscription="new")
        assert [await next_text(other) for _ in range(100)] == [b"%d" % n for n in range(100)]

    run_quietly(scenario, topic_publish_rate_messages=5)


def test_without_a_rate_nothing_is_counted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await eager(world, 100)
        topic = await topic_of(world)
        assert topic.throttles.throttling is None
        assert topic.throttles.publish == ()
        assert topic.throttles.dispatch == ()
        assert (
            await world.broker.registry.get(TopicName.parse("non-persistent://public/default/x"), create=True)
        ).throttles.throttling is None

    run_quietly(scenario)

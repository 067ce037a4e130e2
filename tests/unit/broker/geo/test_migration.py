"""A topic that moves to another cluster: what has to be there first, who is told when, what is refused meanwhile."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext

import pytest

from geminga.broker.geo.green import prepare
from geminga.broker.geo.leading import Leading
from geminga.broker.geo.migration import MOVED_PROPERTY, PARTS_MS_MAX, SUBSCRIPTIONS_MS_MAX, Stage, TopicMigration
from geminga.broker.geo.moves import MovedTo
from geminga.broker.peers.http_client import PeerAnswer, PeerHttp
from geminga.broker.peers.links import PLAIN
from geminga.broker.resources.clusters import policies_path
from geminga.broker.subscription.seek import is_replicated
from geminga.model.errors import UnavailableError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker, send_frame
from support.worlds.policy_levels import set_namespace, topic_of
from support.worlds.rest_world import ask, rest_application

GREEN = {"serviceUrl": "http://green:8080", "brokerServiceUrl": "pulsar://green:6650"}
PLACE = MovedTo("http://green:8080", "", "pulsar://green:6650", "")


class Green:
    """The other cluster: what was made in it; ``refusal``: why nothing is."""

    local = "standalone"
    starts_at_earliest = False

    def moving_turn(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.prepared: list[tuple[str, MovedTo]] = []

    def lead_away(self, topic, place) -> Leading:
        return Leading(topic, place, lambda: self.prepare(topic, place))

    async def prepare(self, topic, place) -> None:
        if self.refusal:
            raise UnavailableError(self.refusal)
        self.prepared.append((str(topic.name), place))


def ready(world: BrokerWorld, green: Green) -> Green:
    """Topics may move."""
    world.broker.other_clusters = lambda: green
    world.broker.__dict__.pop("topic_services", None)
    assert world.broker.topic_services.remote_clusters is green
    return green


async def moving(world: BrokerWorld) -> TopicMigration:
    """All topics begin to; the part of the one."""
    topic = await topic_of(world)
    await world.resources.clusters.change_policies(
        "standalone", lambda _: {"migrated": True, "migratedClusterUrl": GREEN}
    )
    await wait_ms(10)
    part = topic.parts.find(TopicMigration)
    assert part is not None
    return part


async def moved(world: BrokerWorld) -> Green:
    """Where the topic is now."""
    green = ready(world, Green())
    await moving(world)
    await wait_ms(100)
    return green


def moved_of(command: pb.BaseCommand) -> tuple[int, int, str]:
    moved = command.topicMigrated
    return moved.resource_type, moved.resource_id, moved.brokerServiceUrl


def test_a_producer_is_told_when_everything_there_is_made_and_its_messages_are_answered() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, green = await world.client(), ready(world, Green("it does not answer"))
        await client.create_producer()
        part = await moving(world)
        assert (part.stage, part.reason) == (Stage.PREPARING, "it does not answer")
        # Meanwhile it goes on here.
        await client.publish(0)
        green.refusal = ""
        await wait_ms(5000)
        assert green.prepared == [(TOPIC, PLACE)] * 2
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (0, 1, GREEN["brokerServiceUrl"])
        assert (await client.expect(Type.CLOSE_PRODUCER)).close_producer.producer_id == 1
        assert part.stats() == {"stage": "moved", "reason": "", "url": GREEN["brokerServiceUrl"]}

    run_with_broker(scenario)


def test_who_comes_to_a_topic_that_moved_is_led_there() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await moved(world)
        client = await world.client()
        client.request_producer()
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (0, 1, GREEN["brokerServiceUrl"])
        assert (await client.error()).error == pb.ServiceNotReady

    run_with_broker(scenario)


@pytest.mark.parametrize("is_away", [False, True])
def test_nothing_is_published_to_a_topic_that_is_made_while_all_move_unless_the_other_cluster_is_away(
    is_away: bool,
) -> None:
    """The subscriptions that would want it are there, and none is here."""

    async def scenario(world: BrokerWorld) -> None:
        green = ready(world, Green("it does not answer" if is_away else ""))
        prepare_now = green.prepare

        async def prepare_slowly(topic, place) -> None:
            await wait_ms(1000)
            await prepare_now(topic, place)

        green.prepare = prepare_slowly  # type: ignore[method-assign]
        await world.resources.clusters.change_policies(
            "standalone", lambda _: {"migrated": True, "migratedClusterUrl": GREEN}
        )
        client = await world.client()
        client.request_producer()
        if is_away:
            assert (await client.expect(Type.PRODUCER_SUCCESS)).producer_success.producer_ready
            await client.publish(0)
        else:
            assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (0, 1, GREEN["brokerServiceUrl"])
            assert (await client.error()).error == pb.ServiceNotReady

    run_with_broker(scenario)


def test_a_reader_that_wants_what_is_new_is_led_to_where_that_is_and_others_read_what_is_left() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        ready(world, Green())
        await client.create_producer()
        ledger_id, entry_id = await client.publish(0)
        await moving(world)
        await client.expect(Type.CLOSE_PRODUCER)
        await wait_ms(100)
        start = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
        newest = pb.MessageIdData(ledgerId=(1 << 63) - 1, entryId=(1 << 63) - 1)
        for consumer_id, position in enumerate((start, newest), 1):
            request = pb.CommandSubscribe(
                topic=TOPIC, subscription=f"r{consumer_id}", subType=pb.CommandSubscribe.Exclusive, durable=False
            )
            request.consumer_id, request.request_id = consumer_id, 90 + consumer_id
            request.start_message_id.CopyFrom(position)
            client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        told = await client.expect(Type.TOPIC_MIGRATED)
        assert moved_of(told) == (1, 2, GREEN["brokerServiceUrl"])
        assert (await client.error()).request_id == 92
        assert [*(await topic_of(world)).subscriptions] == ["r1"]

    run_with_broker(scenario)


def test_a_consumer_is_told_when_its_subscription_has_acknowledged_everything() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        ready(world, Green())
        await client.create_producer()
        await client.subscribe()
        ledger_id, entry_id = await client.publish(0)
        await moving(world)
        await client.expect(Type.CLOSE_PRODUCER)
        await wait_ms(5000)
        kinds = [command.type for command, _ in client.received]
        assert Type.CLOSE_CONSUMER not in kinds
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
        ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
        client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (1, 1, GREEN["brokerServiceUrl"])
        assert (await client.expect(Type.CLOSE_CONSUMER)).close_consumer.consumer_id == 1

    run_with_broker(scenario)


def test_a_topic_that_no_longer_moves_goes_on_here() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await moved(world)
        await world.resources.clusters.change_policies(
            "standalone", lambda _: {"migrated": False, "migratedClusterUrl": GREEN}
        )
        await wait_ms(100)
        client = await world.publisher()
        await client.publish(0)
        topic = await topic_of(world)
        assert topic.parts.find(TopicMigration) is None
        assert MOVED_PROPERTY not in topic.ledger.stored.properties

    run_with_broker(scenario)


def test_a_topic_that_is_loading_when_its_cluster_is_told_to_move_follows() -> None:
    async def scenario(world: BrokerWorld) -> None:
        ready(world, Green("it does not answer"))
        topic = await topic_of(world)
        world.metadata.faults.delay_ms_max = 20
        for pause_ms in range(0, 60, 3):
            await world.broker.registry.unload(topic.name)
            for is_moved in (False, True):
                loading = spawn(world.broker.registry.load(topic.name), name="load") if is_moved else None
                await wait_ms(pause_ms)
                policies = {"migrated": is_moved, "migratedClusterUrl": GREEN}
                await world.resources.clusters.change_policies("standalone", lambda _, now=policies: now)
            assert loading is not None
            await loading
            await wait_ms(1000)
            assert (await topic_of(world)).parts.find(TopicMigration) is not None, pause_ms

    run_with_broker(scenario)


def test_the_next_owner_of_a_topic_that_moved_takes_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await moved(world)
        green = Green("it is away now")
        await world.restart()
        ready(world, green)
        client = await world.client()
        client.request_producer()
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (0, 1, GREEN["brokerServiceUrl"])

    run_with_broker(scenario)


def test_a_new_subscription_of_a_topic_that_moved_is_made_there_alone() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await world.broker.registry.unload(topic.name)
        await moved(world)
        client = await world.client()
        request = pb.CommandSubscribe(
            topic=TOPIC, subscription="new", subType=pb.CommandSubscribe.Shared, consumer_id=7, request_id=9
        )
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (1, 7, GREEN["brokerServiceUrl"])
        assert (await client.error()).error == pb.ServiceNotReady
        assert not (await topic_of(world)).subscriptions

    run_with_broker(scenario)


@pytest.mark.parametrize("is_made", [True, False])
def test_a_subscription_that_is_being_made_is_waited_for_and_for_too_long_it_begins_anew(is_made: bool) -> None:
    """It is not in the topic yet: the other cluster would begin it behind what producers send there."""

    async def scenario(world: BrokerWorld) -> None:
        green, making = ready(world, Green()), AsyncExitStack()
        prepare_first = green.prepare

        async def with_a_newcomer(topic, place) -> None:
            if not green.prepared:
                await making.enter_async_context(topic.parts.new_subscription())
            await prepare_first(topic, place)

        green.prepare = with_a_newcomer  # type: ignore[method-assign]
        part = await moving(world)
        await wait_ms(SUBSCRIPTIONS_MS_MAX - 1000)
        assert (part.stage, len(green.prepared)) == (Stage.DRAINING, 1)
        if not is_made:
            await wait_ms(1100)
            assert (part.stage, part.reason[:28]) == (Stage.PREPARING, "1 subscriptions are being ma")
        await making.aclose()
        await wait_ms(1000)
        assert (part.stage, len(green.prepared)) == (Stage.MOVED, 2 if is_made else 3)

    run_with_broker(scenario)


def test_what_can_not_be_made_at_last_lets_the_topic_go_on_here() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, green = await world.client(), ready(world, Green())
        await client.create_producer()

        async def once(topic, place) -> None:
            green.prepared.append((str(topic.name), place))
            if len(green.prepared) == 2:
                green.refusal = "it went away"
                raise UnavailableError(green.refusal)
            if green.refusal:
                raise UnavailableError(green.refusal)

        green.prepare = once  # type: ignore[method-assign]
        part = await moving(world)
        await wait_ms(100)
        assert (part.stage, part.reason) == (Stage.PREPARING, "it went away")
        await client.publish(0)

    run_with_broker(scenario)


def test_a_namespace_moves_by_itself_and_topics_of_the_broker_stay() -> None:
    async def scenario(world: BrokerWorld) -> None:
        ready(world, Green())
        topic = await topic_of(world)
        own = await world.broker.registry.load(TopicName.parse("persistent://public/default/__change_events"))
        await set_namespace(world, "migrated", True)
        # Nowhere to go yet.
        assert topic.parts.find(TopicMigration) is None
        await world.resources.clusters.change_policies(
            "standalone", lambda _: {"migrated": False, "migratedClusterUrl": GREEN}
        )
        await wait_ms(100)
        assert topic.parts.find(TopicMigration) is not None
        await world.resources.clusters.change_policies(
            "standalone", lambda _: {"migrated": True, "migratedClusterUrl": GREEN}
        )
        await wait_ms(100)
        assert own.parts.find(TopicMigration) is None
        assert await world.metadata.exists(policies_path("standalone"))

    run_with_broker(scenario)


class Asked(PeerHttp):
    """The administration of the other cluster, by what it answers."""

    links = PLAIN

    def __init__(self, answers: dict[tuple[str, str], tuple[int, object]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, object]] = []

    async def request(self, method: str, url: str, body: bytes = b"") -> PeerAnswer:
        path = url.removeprefix("http://green:8080/admin/v2/")
        self.asked.append((method, path, json.loads(body) if body else None))
        status, answer = self.answers.get((method, path), (204, None))
        return PeerAnswer(status, b"" if answer is None else json.dumps(answer).encode(), "green")


def test_clients_of_a_topic_that_stores_nothing_are_led_there_consumers_first() -> None:
    name = TOPIC.replace("persistent://", "non-persistent://")

    async def scenario(world: BrokerWorld) -> None:
        client, green = await world.client(), ready(world, Green("it does not answer"))
        await client.create_producer(name)
        await client.subscribe(name, consumer_id=2)
        await world.resources.clusters.change_policies(
            "standalone", lambda _: {"migrated": True, "migratedClusterUrl": GREEN}
        )
        await wait_ms(1000)
        # Meanwhile it goes on here.
        await client.publish(0)
        green.refusal = ""
        told = [moved_of(await client.expect(Type.TOPIC_MIGRATED)) for _ in range(2)]
        assert told == [(1, 2, GREEN["brokerServiceUrl"]), (0, 1, GREEN["brokerServiceUrl"])]
        assert green.prepared == [(name, PLACE)]
        client.request_producer(name, producer_id=3)
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (0, 3, GREEN["brokerServiceUrl"])
        assert (await client.error()).error == pb.ServiceNotReady
        request = pb.CommandSubscribe(topic=name, subscription="new", subType=pb.CommandSubscribe.Shared)
        request.consumer_id, request.request_id = 7, 9
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (1, 7, GREEN["brokerServiceUrl"])
        await client.error()
        await world.resources.clusters.change_policies(
            "standalone", lambda _: {"migrated": False, "migratedClusterUrl": GREEN}
        )
        await wait_ms(100)
        await client.create_producer(name, producer_id=4)
        await wait_ms(5000)
        await client.publish(0, producer_id=4)

    run_with_broker(scenario)


def test_tenant_namespace_topic_and_subscriptions_are_made_there() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await topic.create_subscription("my sub", EARLIEST)
        asked = Asked({("GET", "namespaces/public/default"): (404, None), ("GET", "clusters"): (200, ["g"])})
        await prepare(asked, world.resources, topic, PLACE)
        assert [(method, path) for method, path, _ in asked.asked] == [
            ("GET", "namespaces/public/default"),
            ("GET", "clusters"),
            ("PUT", "tenants/public"),
            ("PUT", "namespaces/public/default"),
            ("PUT", "persistent/public/default/topic"),
            ("PUT", "persistent/public/default/topic/subscription/my%2520sub"),
        ]
        assert asked.asked[2][2] == {"adminRoles": [], "allowedClusters": ["g"]}
        assert asked.asked[-1][2] == "earliest"

    run_with_broker(scenario)


def test_a_subscription_is_made_there_with_what_it_gets_by_and_whether_it_is_replicated() -> None:
    """Entry filters go by its properties: without them it would get there what it did not here."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await topic.create_subscription("s", EARLIEST, {"only": "red"}, is_replicated=True)
        asked = Asked({})
        await prepare(asked, world.resources, topic, PLACE)
        assert asked.asked[-1] == (
            "PUT",
            "persistent/public/default/topic/subscription/s?replicated=true",
            {"ledgerId": -1, "entryId": -1, "properties": {"only": "red"}},
        )
        # As the other cluster takes it.
        path = "/admin/v2/persistent/public/default/there"
        application = rest_application(world.broker)
        assert (await ask(application, "PUT", path, b"")).status == 204
        body = json.dumps(asked.asked[-1][2]).encode()
        assert (await ask(application, "PUT", f"{path}/subscription/s?replicated=true", body)).status == 204
        there = world.broker.topics[f"{TOPIC.rpartition('/')[0]}/there"].subscriptions["s"]
        assert (dict(there.cursor.cursor_properties), is_replicated(there)) == ({"only": "red"}, True)

    run_with_broker(scenario)


def test_another_number_of_partitions_ends_the_try_with_both_counts() -> None:
    async def scenario(world: BrokerWorld) -> None:
        whole = TopicName.parse("persistent://public/default/whole")
        await world.broker.partitions.create(whole, 3)
        topic = await world.broker.registry.get(whole.with_partition(1), create=False)
        at = "persistent/public/default/whole/partitions"
        asked = Asked(
            {("PUT", at): (409, None), ("GET", f"{at}?checkAllowAutoCreation=false"): (200, {"partitions": 2})}
        )
        with pytest.raises(UnavailableError, match=r"3 partitions here and not there.*2"):
            await prepare(asked, world.resources, topic, PLACE)

    run_with_broker(scenario)


def test_partitions_that_are_missing_over_there_are_made() -> None:
    async def scenario(world: BrokerWorld) -> None:
        whole = TopicName.parse("persistent://public/default/whole")
        await world.broker.partitions.create(whole, 3)
        topic = await world.broker.registry.get(whole.with_partition(1), create=False)
        at = "persistent/public/default/whole"
        found = {("GET", f"{at}/partitions?checkAllowAutoCreation=false"): (200, {"partitions": 3})}
        for status, is_asked in ((204, False), (409, True)):
            asked = Asked({**found, ("PUT", f"{at}/partitions"): (status, None)})
            await prepare(asked, world.resources, topic, PLACE)
            assert (("POST", f"{at}/createMissedPartitions", None) in asked.asked) is is_asked

    run_with_broker(scenario)


def test_of_a_topic_that_stores_nothing_its_number_of_partitions_is_made_there_alone() -> None:
    async def scenario(world: BrokerWorld) -> None:
        whole = TopicName.parse("non-persistent://public/default/whole")
        await world.broker.partitions.create(whole, 3)
        at = "non-persistent/public/default/whole/partitions"
        found = {("GET", f"{at}?checkAllowAutoCreation=false"): (200, {"partitions": 3})}
        for name, expected in ((whole.with_partition(1), [("PUT", at)]), (TopicName.parse(f"{whole}-single"), [])):
            topic = await world.broker.registry.load(name)
            await topic.create_subscription("s", EARLIEST)
            asked = Asked({**found, ("PUT", at): (409, None)})
            await prepare(asked, world.resources, topic, PLACE)
            assert [(method, path) for method, path, _ in asked.asked if method != "GET"] == expected

    run_with_broker(scenario)


def test_what_is_refused_there_is_told_with_the_reason() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        refused = Asked({("PUT", "persistent/public/default/topic"): (403, {"reason": "not you"})})
        with pytest.raises(UnavailableError, match=r"does not make .*topic: not you"):
            await prepare(refused, world.resources, topic, PLACE)
        with pytest.raises(UnavailableError, match="no serviceUrl"):
            await prepare(refused, world.resources, topic, MovedTo("", "", "pulsar://green:6650", ""))

    run_with_broker(scenario)


def test_what_is_sent_while_it_moves_is_sent_again_behind_the_answers_of_what_came_before() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, green = await world.client(), ready(world, Green())
        await client.create_producer()
        gate: asyncio.Event = asyncio.Event()

        async def slow(topic, place) -> None:
            green.prepared.append((str(topic.name), place))
            if len(green.prepared) == 2:
                await gate.wait()

        green.prepare = slow  # type: ignore[method-assign]
        part = await moving(world)
        await wait_ms(100)
        assert part.stage is Stage.DRAINING
        client.send_message(0)
        # No answer: the client sends it again when it is told to connect anew.
        assert (await client.expect(Type.CLOSE_PRODUCER)).close_producer.producer_id == 1
        assert Type.SEND_ERROR not in [command.type for command, _ in client.received]
        client.request_producer()
        assert (await client.error()).error == pb.ServiceNotReady
        gate.set()
        await wait_ms(100)
        assert part.stage is Stage.MOVED
        assert (await topic_of(world)).ledger.ledgers.entry_count == 0

    run_with_broker(scenario)


def test_what_was_dropped_while_it_was_to_move_is_stored_where_it_stays_though_ids_are_remembered() -> None:
    """Deduplication is not to take for under way what was dropped behind its back."""

    async def scenario(world: BrokerWorld) -> None:
        client, green = await world.client(), ready(world, Green())
        await client.create_producer(producer_name="producer")
        await client.publish(0)
        gate: asyncio.Event = asyncio.Event()

        async def in_vain(topic, place) -> None:
            green.prepared.append((str(topic.name), place))
            if len(green.prepared) > 1:
                await gate.wait()
                raise UnavailableError("it went away")

        green.prepare = in_vain  # type: ignore[method-assign]
        part = await moving(world)
        await wait_ms(100)
        assert part.stage is Stage.DRAINING
        client.send_message(1)
        await client.expect(Type.CLOSE_PRODUCER)
        gate.set()
        await wait_ms(100)
        assert part.stage is Stage.PREPARING
        success = await client.create_producer(producer_name="producer", epoch=1)
        assert success.last_sequence_id == 0
        await client.publish(1)
        assert (await topic_of(world)).ledger.ledgers.entry_count == 2

    run_with_broker(scenario, deduplication=True)


def part_of(number: int, *, count: int = 3) -> dict[str, object]:
    metadata = {"uuid": "u", "chunk_id": number, "num_chunks_from_msg": count, "total_chunk_msg_size": 9}
    return {"metadata": metadata, "is_chunk": True}


def test_the_rest_of_a_message_in_parts_is_taken_where_it_began() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, green = await world.client(), ready(world, Green("it does not answer"))
        await client.create_producer()
        part = await moving(world)
        client.send_message(0, **part_of(0))
        await client.receipt()
        green.refusal = ""
        await wait_ms(1500)
        assert (part.stage, part.reason) == (Stage.DRAINING, "the rest of a message in parts is waited for")
        client.send_message(0, **part_of(1))
        await client.receipt()
        client.send_bytes(send_frame(0, **part_of(2)) + send_frame(1))
        assert (await client.receipt()).sequence_id == 0
        # What comes behind it is not taken: it is sent again there.
        await client.expect(Type.CLOSE_PRODUCER)
        await wait_ms(1500)
        assert part.stage is Stage.MOVED
        assert (await topic_of(world)).ledger.ledgers.entry_count == 3

    run_with_broker(scenario)


def test_who_hangs_in_the_midst_of_a_message_holds_up_nobody_for_long() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        ready(world, Green())
        await client.create_producer()
        client.send_message(0, **part_of(0))
        await client.receipt()
        part = await moving(world)
        client.send_message(0, **part_of(1))
        await wait_ms(PARTS_MS_MAX + 1000)
        assert part.stage is Stage.MOVED

    run_with_broker(scenario)

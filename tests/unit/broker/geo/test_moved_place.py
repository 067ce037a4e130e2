"""The place that topics move to changes: nobody is led where nothing was made for them."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.geo.clusters import OtherClusters
from geminga.broker.geo.green import prepare
from geminga.broker.geo.migration import MADE_PROPERTY, MOVED_PROPERTY, Stage
from geminga.broker.geo.moves import MovedTo
from geminga.broker.resources import Resources
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import UnavailableError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker
from support.worlds.policy_levels import set_namespace, topic_of
from support.worlds.rest_world import ask, rest_application
from unit.broker.geo.test_migration import GREEN, PLACE, Asked, Green, moved, moved_of, moving, part_of, ready

OTHER = {"serviceUrl": "http://other:8080", "brokerServiceUrl": "pulsar://other:6650"}
OTHER_PLACE = MovedTo("http://other:8080", "", "pulsar://other:6650", "")


async def move(world: BrokerWorld, *, to: dict[str, str], is_moved: bool = True) -> None:
    policies = {"migrated": is_moved, "migratedClusterUrl": to}
    await world.resources.clusters.change_policies("standalone", lambda _: policies)
    await wait_ms(10)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_who_moved_is_led_to_another_place_when_everything_is_made_there(is_loaded: bool) -> None:
    """Its subscriptions would begin there with what comes after their consumers."""

    async def scenario(world: BrokerWorld) -> None:
        green = ready(world, Green())
        part = await moving(world)
        await wait_ms(100)
        assert part.stage is Stage.MOVED
        green.prepared.clear()
        green.refusal = "it does not answer"
        if not is_loaded:
            await world.broker.registry.unload((await topic_of(world)).name)
        await move(world, to=OTHER)
        await wait_ms(100)
        client = await world.client()
        client.request_producer()
        assert (await client.error()).error == pb.ServiceNotReady
        green.refusal = ""
        await wait_ms(5000)
        assert green.prepared == [(TOPIC, OTHER_PLACE)]
        client.request_producer()
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (0, 1, OTHER["brokerServiceUrl"])

    run_with_broker(scenario)


def test_a_move_that_was_undone_while_nobody_loaded_the_topic_is_made_anew_for_another_place() -> None:
    async def scenario(world: BrokerWorld) -> None:
        green = await moved(world)
        await world.broker.registry.unload((await topic_of(world)).name)
        await move(world, to=GREEN, is_moved=False)
        green.prepared.clear()
        await move(world, to=OTHER)
        await topic_of(world)
        await wait_ms(1000)
        assert {place for _, place in green.prepared} == {OTHER_PLACE}

    run_with_broker(scenario)


def test_a_place_that_clients_can_not_go_to_is_none() -> None:
    async def scenario(world: BrokerWorld) -> None:
        green = ready(world, Green())
        topic = await topic_of(world)
        await set_namespace(world, "migrated", True)
        await move(world, to={"serviceUrl": GREEN["serviceUrl"]}, is_moved=False)
        await wait_ms(1000)
        client = await world.publisher()
        await client.publish(0)
        assert (green.prepared, world.broker.topic_services.moves.place_of(topic.rules)) == ([], None)
        await move(world, to=GREEN, is_moved=False)
        await wait_ms(1000)
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (0, 1, PLACE.broker_url)

    run_with_broker(scenario)


def test_a_place_that_changes_while_the_last_is_made_is_where_everything_is_made() -> None:
    async def scenario(world: BrokerWorld) -> None:
        green = ready(world, Green())
        prepare_now = green.prepare

        async def prepare_slowly(topic, place) -> None:
            await wait_ms(1000)
            await prepare_now(topic, place)

        green.prepare = prepare_slowly  # type: ignore[method-assign]
        client = await world.publisher()
        part = await moving(world)
        await wait_ms(1500)
        assert (part.stage, green.prepared) == (Stage.DRAINING, [(TOPIC, PLACE)])
        await move(world, to=OTHER)
        assert moved_of(await client.expect(Type.TOPIC_MIGRATED)) == (0, 1, OTHER["brokerServiceUrl"])
        assert green.prepared == [(TOPIC, PLACE), (TOPIC, PLACE), (TOPIC, OTHER_PLACE)]

    run_with_broker(scenario)


def test_what_says_where_it_moved_is_no_property_of_users_and_goes_when_nothing_moves() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await moved(world)
        application, path = rest_application(world.broker), "/admin/v2/persistent/public/default/topic/properties"
        assert (await ask(application, "PUT", path, b'{"a":"1"}')).status == 204
        assert json.loads((await ask(application, "GET", path)).body) == {"a": "1"}
        properties = (await topic_of(world)).ledger.stored.properties
        assert (properties[MOVED_PROPERTY], GREEN["serviceUrl"] in properties[MADE_PROPERTY]) == ("true", True)
        await move(world, to=GREEN, is_moved=False)
        await wait_ms(100)
        assert (await topic_of(world)).ledger.stored.properties == {"a": "1"}

    run_with_broker(scenario)


def test_a_topic_that_stores_nothing_and_is_gone_leads_nobody_away() -> None:
    """It closes while it reads whether it moves."""

    async def scenario(world: BrokerWorld) -> None:
        green = ready(world, Green("it does not answer"))
        tried: list[str] = []
        prepare_now = green.prepare

        async def prepare_counted(topic, place) -> None:
            tried.append(str(topic.name))
            await prepare_now(topic, place)

        green.prepare = prepare_counted  # type: ignore[method-assign]
        for pause_ms in range(0, 40, 3):
            name = TopicName.parse(f"non-persistent://public/default/t{pause_ms}")
            await move(world, to=GREEN, is_moved=False)
            await world.broker.registry.get(name, create=True)
            world.metadata.faults.delay_ms_max = 20
            policies = {"migrated": True, "migratedClusterUrl": GREEN}
            await world.resources.clusters.change_policies("standalone", lambda _, now=policies: now)
            await wait_ms(pause_ms)
            await world.broker.registry.unload(name)
            world.metadata.faults.delay_ms_max = 0
            await wait_ms(1000)
            tried.clear()
            await wait_ms(300_000)
            assert tried == [], pause_ms

    run_with_broker(scenario, keep_alive_interval_s=1_000_000)


def test_who_left_in_the_midst_of_a_message_is_not_remembered_while_the_topic_can_not_move() -> None:
    """It may be long, and clients come and go as often as they like."""

    async def scenario(world: BrokerWorld) -> None:
        ready(world, Green("it does not answer"))
        part = await moving(world)
        for number in range(30):
            client = await world.publisher(producer_name=f"{number % 3}")
            client.send_message(0, **part_of(0))
            await client.receipt()
            client.lose()
        await wait_ms(1000)
        assert part.stage is Stage.PREPARING
        assert part._midst == set()  # what it holds is seen nowhere else

    run_with_broker(scenario)


@pytest.mark.parametrize(
    "address", ["green:port", "green:0", "green:65536", "green:", ":6650", "[::1", "a,b:x", "a,:6650"]
)
def test_an_address_that_no_client_can_take_is_refused_before_anybody_is_led_there(address: str) -> None:
    """Clients that were led to it would end: it is none that could answer later."""

    async def scenario(world: BrokerWorld) -> None:
        ready(world, Green())
        application = rest_application(world.broker)
        path = "/admin/v2/clusters/standalone/migrate"
        body = {**GREEN, "brokerServiceUrl": f"pulsar://{address}"}
        answer = await ask(application, "POST", f"{path}?migrated=true", json.dumps(body).encode())
        assert answer.status == 400
        assert "brokerServiceUrl must be pulsar://host:port" in json.loads(answer.body)["reason"]
        for good in ("green:6650", "green", "a:1,b:65535,[::1]:6650", "10.0.0.1:6650/"):
            body = {**GREEN, "brokerServiceUrl": f"pulsar://{good}"}
            assert (await ask(application, "POST", path, json.dumps(body).encode())).status == 204

    run_with_broker(scenario)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("partitions", [0, 3])
def test_a_topic_without_partitions_does_not_move_to_one_that_has_some(domain: str, partitions: int) -> None:
    """Its clients would be led to a name that takes neither producers nor consumers."""

    async def scenario(world: BrokerWorld) -> None:
        at = f"{domain}/public/default/topic"
        topic = await world.broker.registry.load(TopicName.parse(f"{domain}://public/default/topic"))
        await topic.create_subscription("s", EARLIEST)
        there = {("GET", f"{at}/partitions?checkAllowAutoCreation=false"): (200, {"partitions": partitions})}
        asked = Asked({("PUT", at): (409, {"reason": "it exists"}), **there})
        if partitions:
            with pytest.raises(UnavailableError, match=r"topic has no partitions here and others there.*3"):
                await prepare(asked, world.resources, topic, PLACE)
            assert [path for method, path, _ in asked.asked if "subscription" in path] == []
        else:
            await prepare(asked, world.resources, topic, PLACE)

    run_with_broker(scenario)


class SlowGreen(asyncio.Protocol):
    """The administration of the other cluster: it has everything, and says so three seconds late."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        asyncio.get_running_loop().call_later(3, self._answer)

    def _answer(self) -> None:
        self.transport.write(b"HTTP/1.1 200 so\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        self.transport.close()


def test_many_topics_that_begin_to_move_ask_in_turns_and_who_publishes_no_more_waits_behind_none() -> None:
    """Of all at once most would be given up before they are answered, again and again."""
    topics = 1000

    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            clusters = OtherClusters(node.runtime, Resources(MemoryMetadataStore(node.runtime)), BrokerConfig())
            green = world.node("green")
            await green.run(lambda there: there.runtime.network.listen(SlowGreen, "0.0.0.0", 8080))
            topic = SimpleNamespace(name=TopicName.parse(TOPIC), subscriptions={})

            async def begin() -> None:
                async with clusters.moving_turn():
                    await clusters.prepare(topic, PLACE)

            beginning = [asyncio.ensure_future(begin()) for _ in range(topics)]
            await wait_ms(1000)
            since_s = world.now
            await clusters.prepare(topic, PLACE)
            assert world.now - since_s <= 10
            assert await asyncio.gather(*beginning) == [None] * topics
            await clusters.close()

        await world.node("broker").run(on_node)

    sim.run(main)

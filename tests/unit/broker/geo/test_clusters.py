"""The other clusters: what is stored of them is followed, and how much is on its way to all of them is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.geo.clusters import BYTES_MAX, OtherClusters, OutgoingBytes
from geminga.broker.geo.watch import LOOK_S
from geminga.broker.resources import Resources
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, wait_ms

TOPIC = TopicName.parse("persistent://public/default/t")
#: Nobody is there.
DATA = {"serviceUrl": "http://west:8080", "brokerServiceUrl": "pulsar://west:6650"}


def run_with(scenario: Callable[[OtherClusters, Resources], Awaitable[None]], **settings: object) -> None:
    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            resources = Resources(MemoryMetadataStore(node.runtime))
            config = BrokerConfig(cluster_name="east", **settings)  # type: ignore[arg-type]
            clusters = OtherClusters(node.runtime, resources, config)
            try:
                await scenario(clusters, resources)
            finally:
                await clusters.close()

        await world.node("broker").run(on_node)

    sim.run(main)


async def refusal(clusters: OtherClusters, name: str = "west") -> str:
    with pytest.raises(UnavailableError) as caught:
        await clusters.open(name, TOPIC)
    return f"{caught.value}"


def test_what_is_stored_of_a_cluster_is_used_when_it_changes() -> None:
    async def scenario(clusters: OtherClusters, resources: Resources) -> None:
        assert await refusal(clusters) == "there is no cluster west"
        await resources.clusters.create("west", {"serviceUrl": "http://west:8080"})
        assert "has no brokerServiceUrl and serviceUrl" in await refusal(clusters)
        await resources.clusters.update("west", {**DATA, "authenticationPlugin": "strange"})
        assert "cluster west: " in await refusal(clusters)
        assert "strange" in await refusal(clusters)
        await resources.clusters.update("west", {**DATA, "brokerClientTlsEnabled": True})
        assert "has no brokerServiceUrlTls and serviceUrlTls" in await refusal(clusters)
        await resources.clusters.update("west", DATA)
        assert "west:8080 does not answer" in await refusal(clusters)
        (known,) = clusters._clusters.values()  # whose end is looked for
        # Also where nobody asks: who copies begins anew.
        await resources.clusters.update("west", {**DATA, "serviceUrl": "http://other:8080"})
        await wait_ms(LOOK_S * 1000 + 1)
        assert known._client.is_closed
        assert "other:8080 does not answer" in await refusal(clusters)
        await resources.clusters.delete("west")
        assert await refusal(clusters) == "there is no cluster west"

    run_with(scenario)


def test_nothing_is_opened_when_the_broker_closes() -> None:
    async def scenario(clusters: OtherClusters, resources: Resources) -> None:
        await resources.clusters.create("west", DATA)
        await clusters.close()
        assert await refusal(clusters) == "the broker is closing"

    run_with(scenario)


@pytest.mark.parametrize(("value", "is_earliest"), [("latest", False), ("earliest", True)])
def test_where_it_begins_is_configured(value: str, is_earliest: bool) -> None:
    async def scenario(clusters: OtherClusters, resources: Resources) -> None:
        del resources
        assert (clusters.local, clusters.starts_at_earliest) == ("east", is_earliest)

    run_with(scenario, replication_start_at=value)


def test_who_waits_for_room_looks_again_when_there_is_less() -> None:
    async def main(_: sim.SimWorld) -> None:
        outgoing = OutgoingBytes()
        outgoing.add(BYTES_MAX)
        assert outgoing.is_full
        waiting = [asyncio.ensure_future(outgoing.changed()) for _ in range(2)]
        waiting.append(asyncio.ensure_future(outgoing.changed()))
        await next_turn()
        waiting[2].cancel()
        await next_turn()
        outgoing.add(5)
        await next_turn()
        assert not any(task.done() for task in waiting[:2])
        outgoing.add(-6)
        await next_turn()
        assert all(task.done() for task in waiting)
        assert not outgoing.is_full

    sim.run(main)

"""A topic that is loaded by policies which are not what is stored any more loses nothing that those would keep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.coercion import Json
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.topic_name import DEDUP_CURSOR
from geminga.runtime import wait_ms
from support.worlds.broker_world import BrokerWorld
from support.worlds.metadata_behind import MetadataBehind
from support.worlds.other_cluster import join
from support.worlds.policy_levels import NAME, NAMESPACE, topic_of

POLICIES = f"/admin/policies/{NAMESPACE}"


class Stage:
    """A broker whose metadata server lags behind where a story says so."""

    def __init__(self, world: BrokerWorld, store: MetadataBehind) -> None:
        self.world = world
        self.store = store

    async def set(self, key: str, value: Json) -> None:
        await self.world.resources.namespaces.set_policy(NAMESPACE, key, value)
        await self.world.broker.policies_changed(NAMESPACE)

    async def loaded_by_policies_of_before(self, change: Callable[[], Awaitable[None]]) -> PersistentTopic:
        """The topic, as who did not hear of ``change`` loads it; what comes of it is heard a moment later."""
        before = await self.store.get(POLICIES)
        await change()
        await self.world.broker.registry.unload(NAME)
        self.world.broker.namespaces.forget(NAMESPACE)
        self.store.nodes_before[POLICIES] = before
        await topic_of(self.world)
        await wait_ms(100)
        self.store.nodes_before.clear()
        await self.world.broker.policies_changed(NAMESPACE)
        return await topic_of(self.world)


def run(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def on_node(node: sim.SimNode) -> None:
        store = MetadataBehind(node.runtime)
        config = BrokerConfig(delete_inactive_topics=False)
        world = BrokerWorld(node.runtime, config, ManagedLedgerConfig(), store=store)
        await world.start()
        await story(Stage(world, store))
        await world.stop()

    async def main(world: sim.SimWorld) -> None:
        await world.node("broker").run(on_node)

    sim.run(main)


def test_sequence_ids_are_kept_where_deduplication_was_switched_on_a_moment_ago() -> None:
    async def story(stage: Stage) -> None:
        async def switched_on() -> None:
            await stage.set("deduplicationEnabled", True)
            client = await stage.world.client()
            await client.create_producer(producer_name="producer")
            for sequence_id in range(5):
                await client.publish(sequence_id)
            topic = await topic_of(stage.world)
            await topic.save_sequence_ids()

        topic = await stage.loaded_by_policies_of_before(switched_on)
        assert topic.ledger.cursors[DEDUP_CURSOR].properties == {"producer": 4}

    run(story)


def test_what_is_still_to_be_copied_is_kept_where_a_cluster_was_named_a_moment_ago() -> None:
    async def story(stage: Stage) -> None:
        other = join(stage.world)
        other.refused.add(b"kept")
        await stage.world.resources.clusters.create("far", {"serviceUrl": "http://far:8080"})

        async def named() -> None:
            await stage.set("replication_clusters", ["standalone", "far"])
            client = await stage.world.client()
            await client.create_producer(producer_name="producer")
            await client.publish(0, b"kept")

        topic = await stage.loaded_by_policies_of_before(named)
        assert topic.ledger.cursors["pulsar.repl.far"].backlog_count == 1

    run(story)


@pytest.mark.parametrize("key", ["deduplicationEnabled", "replication_clusters"])
def test_what_nothing_wants_any_more_goes(key: str) -> None:
    async def story(stage: Stage) -> None:
        join(stage.world)
        await stage.set(key, {"deduplicationEnabled": True}.get(key, ["standalone", "far"]))
        topic = await topic_of(stage.world)
        assert list(topic.ledger.cursors) == [{"deduplicationEnabled": DEDUP_CURSOR}.get(key, "pulsar.repl.far")]
        await stage.set(key, {"deduplicationEnabled": False}.get(key, ["standalone"]))
        assert not topic.ledger.cursors

    run(story)

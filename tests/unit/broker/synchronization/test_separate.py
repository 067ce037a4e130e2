"""What a broker removes by itself stays where others may need it."""

from __future__ import annotations

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.synchronization.separate import SeparateStores
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import BrokerWorld

NAME = TopicName.parse("persistent://public/default/parts")


def test_number_of_partitions_stays_where_the_namespace_lives_in_other_clusters() -> None:
    async def story(world: BrokerWorld) -> None:
        apart = SeparateStores("standalone", world.resources)
        await world.resources.namespaces.set_policy(
            "public/default", "replication_clusters", ["standalone", "west", "east"]
        )
        assert await apart.others("public/default") == ["east", "west"]
        assert await apart.others("public/none") == await apart.holders(NAME) == []
        await apart.make_partitions(NAME, 3)
        partitions = world.broker.partitions
        await world.resources.partitioned_topics.create(NAME, 2)
        assert not await partitions.delete_if_empty(NAME)
        # Who asks for it has it, without anybody being asked.
        await partitions.delete(NAME)
        assert await world.resources.partitioned_topics.find_stored(NAME) is None

    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            broker = BrokerWorld(
                node.runtime,
                BrokerConfig(),
                ManagedLedgerConfig(),
                sharing=lambda resources: SeparateStores("standalone", resources),
            )
            await broker.start()
            await story(broker)
            await broker.stop()

        await world.node("broker").run(on_node)

    sim.run(main)

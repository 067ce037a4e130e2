"""Which topics a namespace has, by what is stored and by what is loaded."""

from __future__ import annotations

from geminga.broker.registry.topic_names import non_persistent_names, persistent_names
from geminga.model.topic_name import PENDING_ACK_SUFFIX, SYSTEM_NAMESPACE, TopicName
from geminga.runtime import Turns
from support.worlds.broker_world import BrokerWorld, run_with_broker

NAMESPACE = "public/default"
EVENTS = f"persistent://{NAMESPACE}/__change_events"


def test_stored_topics_have_their_full_names_whatever_is_in_them_and_hidden_ones_only_for_the_broker() -> None:
    shown = [f"persistent://{NAMESPACE}/{local}" for local in ("a b", "a%2Fb", "t", "t-partition-1", "é/ü")]

    async def scenario(world: BrokerWorld) -> None:
        for name in (*shown, EVENTS, f"persistent://{NAMESPACE}/t-s{PENDING_ACK_SUFFIX}"):
            ledger = await world.ledgers.open(TopicName.parse(name).managed_ledger_name)
            await ledger.close()

        async def names(namespace: str, *, has_system: bool) -> list[str]:
            return sorted(
                await persistent_names(world.ledgers, namespace, Turns(world.runtime.clock), has_system=has_system)
            )

        assert await names(NAMESPACE, has_system=False) == shown
        assert await names(NAMESPACE, has_system=True) == sorted([*shown, EVENTS])  # never what transactions keep
        assert await names("public/defaul", has_system=True) == []
        assert await names(SYSTEM_NAMESPACE, has_system=False) == []

    run_with_broker(scenario)


def test_non_persistent_topics_are_those_loaded_here_and_all_partitions_of_a_stored_count() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(TopicName.parse(f"non-persistent://{NAMESPACE}/p"), 3)
        await world.broker.partitions.create(TopicName.parse(f"persistent://{NAMESPACE}/q"), 2)
        loaded = [
            f"non-persistent://{NAMESPACE}/p-partition-1",
            f"non-persistent://{NAMESPACE}/n",
            "non-persistent://public/default-2/n",
            f"persistent://{NAMESPACE}/n",
        ]
        found = await non_persistent_names(loaded, world.resources, NAMESPACE, Turns(world.runtime.clock))
        partitions = {f"non-persistent://{NAMESPACE}/p-partition-{index}" for index in range(3)}
        assert found == partitions | {f"non-persistent://{NAMESPACE}/n"}

    run_with_broker(scenario)

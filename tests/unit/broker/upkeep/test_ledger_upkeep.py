"""Upkeep of managed ledgers: retention by policy, and ledgers a crash left behind."""

from __future__ import annotations

import pytest

from geminga.broker.core.orphan_looks import APART_S
from geminga.broker.schema.store import META_SCHEMA_ID
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.upkeep.ledger_upkeep import ORPHANS_AGAIN_AFTER_S, ORPHANS_FIRST_AFTER_S
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.topic_name import TopicName
from geminga.wire.bookkeeper.ledger_path import ledger_path
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.ledger_world import unlisted
from support.worlds.metadata_stores import all_paths
from support.worlds.policy_levels import seconds

#: Ledgers of two entries, closed as soon as they are full.
SMALL = ManagedLedgerConfig(max_entries_per_ledger=2, min_rollover_minutes=0)
HOUR_S = 3600.0


async def publish(world: BrokerWorld, count: int) -> None:
    client = await world.publisher()
    for sequence_id in range(count):
        await client.publish(sequence_id)
    await client.close_producer()


def test_consumed_ledgers_stay_for_the_broker_s_retention_time_then_go() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await publish(world, 7)
        ledger = world.topic.ledger
        await seconds(1800)
        assert ledger.ledgers.entry_count == 7
        await seconds(HOUR_S)
        assert ledger.ledgers.entry_count == 1

    run_with_broker(
        scenario,
        ledger_config=SMALL,
        default_retention_minutes=60,
        default_retention_mb=-1,
        delete_inactive_topics=False,
    )


def test_consumed_ledgers_without_retention_go_at_once() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await publish(world, 7)
        await seconds(1)
        assert world.topic.ledger.ledgers.entry_count == 1

    run_with_broker(scenario, ledger_config=SMALL, delete_inactive_topics=False)


def test_retention_of_the_namespace_wins_and_takes_effect_when_it_changes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for_ever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        await world.resources.namespaces.set_policy("public/default", "retention_policies", for_ever)
        await publish(world, 7)
        ledger = world.topic.ledger
        await seconds(3 * HOUR_S)
        assert ledger.ledgers.entry_count == 7
        nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        await world.resources.namespaces.set_policy("public/default", "retention_policies", nothing)
        await world.broker.policies_changed("public/default")
        await seconds(130)
        assert ledger.ledgers.entry_count == 1

    run_with_broker(scenario, ledger_config=SMALL, delete_inactive_topics=False)


def test_ledgers_that_nothing_names_are_collected_after_the_start() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await publish(world, 1)
        ledger = world.topic.ledger
        orphan = await unlisted(ledger)
        schema_orphan = await world.ledgers.bookkeeper.create_ledger(
            ensemble_size=1, write_quorum=1, ack_quorum=1, custom_metadata={META_SCHEMA_ID: b"public/default/gone"}
        )
        await seconds(60)
        await world.restart()
        # The first look comes after minutes, the second an hour after it.
        await seconds(HOUR_S)
        assert await world.metadata.exists(ledger_path(orphan.ledger_id))
        await seconds(600)
        assert not await world.metadata.exists(ledger_path(orphan.ledger_id))
        assert not await world.metadata.exists(ledger_path(schema_orphan.ledger_id))
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=False)
        assert isinstance(topic, PersistentTopic)
        assert topic.ledger.ledgers.entry_count == 1

    run_with_broker(scenario, delete_inactive_topics=False)


@pytest.mark.parametrize("root", ["/namespace", "/managed-ledgers", "/schemas"])
def test_empty_parents_go_with_their_namespaces(root: str) -> None:
    """Such as of an owner that was killed: its node goes with its session, and nobody is left to take the parents."""

    async def scenario(world: BrokerWorld) -> None:
        for path in ("gone/left", "public/left", "gone/held/0x0_0x8", "public/default"):
            value = b"owner" if "0x" in path else b""
            await world.metadata.put(f"{root}/{path}", value, expected_version=None)
        await seconds(ORPHANS_FIRST_AFTER_S + 1)
        assert await all_paths(world.metadata, root) == [
            f"{root}/gone",
            f"{root}/gone/held",
            f"{root}/gone/held/0x0_0x8",
            f"{root}/public",
            f"{root}/public/default",
        ]
        await world.metadata.delete(f"{root}/gone/held/0x0_0x8", expected_version=None)
        await seconds(24 * HOUR_S)
        assert await all_paths(world.metadata, root) == [f"{root}/public", f"{root}/public/default"]

    run_with_broker(scenario)


def test_second_look_for_orphans_comes_when_two_looks_are_far_enough_apart():
    assert ORPHANS_AGAIN_AFTER_S > APART_S

"""The policy of persistence: on a loaded topic from its next ledger on, after an unload, after a restart."""

from __future__ import annotations

import pytest

from geminga.managed_ledger import ManagedLedgerConfig, Persistence
from geminga.model.position import EARLIEST
from support.worlds.broker_world import BrokerWorld
from support.worlds.ledger_world import acknowledge
from support.worlds.policy_levels import NAME, Publisher, run_quietly, seconds, set_namespace, set_topic, topic_of

WIDE = {
    "bookkeeperEnsemble": 3,
    "bookkeeperWriteQuorum": 3,
    "bookkeeperAckQuorum": 2,
    "managedLedgerMaxMarkDeleteRate": 0.5,
}
SMALL = ManagedLedgerConfig(max_entries_per_ledger=4, min_rollover_minutes=0)
WIDE_BROKER = ManagedLedgerConfig(
    max_entries_per_ledger=4,
    min_rollover_minutes=0,
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    mark_delete_rate_limit=0.5,
)


async def quorums(world: BrokerWorld, ledger_id: int) -> tuple[int, int, int]:
    metadata = (await world.ledgers.bookkeeper.read_ledger(ledger_id)).metadata
    return metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum


async def of_a_new_ledger(world: BrokerWorld, publisher: Publisher) -> tuple[tuple[int, int, int], float]:
    """Quorums of the ledger that the topic makes next, and its rate."""
    topic = await topic_of(world)
    await topic.ledger.roll()
    await publisher.publish()
    return await quorums(world, topic.ledger.ledgers.last.ledger_id), topic.ledger.persistence.mark_delete_rate


@pytest.mark.parametrize("level", ["broker", "namespace", "topic"])
def test_quorums_and_rate_of_each_level_hold_for_the_next_ledgers(level: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await Publisher.open(world)
        await publisher.publish()
        first = (await topic_of(world)).ledger.ledgers.last.ledger_id
        before = ((3, 3, 2), 0.5) if level == "broker" else ((1, 1, 1), 2.0)
        if level == "namespace":
            await set_namespace(world, "persistence", WIDE)
        elif level == "topic":
            await set_topic(world, "persistence", WIDE)
        # The open ledger keeps its own until it is full.
        await publisher.publish()
        assert (await topic_of(world)).ledger.ledgers.last.ledger_id == first
        assert await quorums(world, first) == before[0]
        assert await of_a_new_ledger(world, publisher) == ((3, 3, 2), 0.5)
        await world.broker.registry.unload(NAME)
        assert await of_a_new_ledger(world, await Publisher.open(world)) == ((3, 3, 2), 0.5)
        await world.restart()
        again = await Publisher.open(world)
        assert await of_a_new_ledger(world, again) == ((3, 3, 2), 0.5)
        if level == "namespace":
            await set_namespace(world, "persistence", None)
        elif level == "topic":
            await set_topic(world, "persistence", None)
        assert await of_a_new_ledger(world, again) == before

    run_quietly(scenario, bookies=3, ledger_config=WIDE_BROKER if level == "broker" else SMALL)


def test_cursors_of_a_loaded_topic_follow_quorums_and_rate() -> None:
    async def scenario(world: BrokerWorld) -> None:
        publisher = await Publisher.open(world)
        topic = await topic_of(world)
        cursor = (await topic.create_subscription("s", EARLIEST)).cursor
        for _ in range(4):
            await publisher.publish()
        await set_topic(world, "persistence", {**WIDE, "managedLedgerMaxMarkDeleteRate": 0.1})
        positions = [topic.ledger.ledgers.position_at(number) for number in range(4)]
        cursor.acknowledge(positions[:1])
        await seconds(0.5)
        assert await quorums(world, cursor.store.ledger_id) == (3, 3, 2)
        cursor.acknowledge(positions[1:2])
        await seconds(8)
        assert cursor.store.persisted_mark_delete == positions[0]
        assert await acknowledge(cursor, positions[2:3]) is None
        assert cursor.store.persisted_mark_delete == positions[2]

    run_quietly(scenario, bookies=3, ledger_config=SMALL)


@pytest.mark.parametrize("rate", [-1, 0, None])
def test_a_rate_that_is_none_is_no_limit(rate: int | None) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_topic(world, "persistence", {**WIDE, "managedLedgerMaxMarkDeleteRate": rate})
        assert topic.ledger.persistence == Persistence(3, 3, 2, 0)

    run_quietly(scenario, bookies=3)


@pytest.mark.parametrize("ack", [0, 4])
def test_quorums_that_no_ledger_can_have_set_nothing(ack: int) -> None:
    """As an older or another broker may have stored them."""

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_topic(world, "persistence", {**WIDE, "bookkeeperAckQuorum": ack})
        assert topic.ledger.persistence == Persistence(1, 1, 1, 2.0)

    run_quietly(scenario)

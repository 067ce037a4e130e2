"""Subscriptions named ``pulsar.repl.<cluster>``: an operator passes over what is to be copied."""

from __future__ import annotations

from support.worlds.broker_world import BrokerWorld, run_with_broker
from unit.broker.geo.test_backlog import PATH, kept, late, posted
from unit.broker.topic.test_deduplication import moment


def test_an_operator_passes_over_some_all_or_what_is_old() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, client = await kept(world, 5)
        (replicator,) = other.replicators
        assert await posted(world, f"{PATH}/skip/2") == 204
        assert replicator.backlog == 3
        assert await posted(world, f"{PATH}/skip/-1") == 412
        client.lose()
        await moment(100)
        await late(world, b"5")
        assert await posted(world, f"{PATH}/expireMessages/50") == 204
        assert replicator.backlog == 1
        assert await posted(world, f"{PATH}/skip_all") == 204
        assert replicator.backlog == 0
        # There is nothing to look at.
        assert await posted(world, f"{PATH}/expireMessages/50") == 409
        for call in ("skip_all", "skip/1", "expireMessages/1"):
            assert await posted(world, f"{PATH.replace('west', 'north')}/{call}") == 404
        other.away = None
        await moment(200)
        assert other.payloads == []

    run_with_broker(scenario, delete_inactive_topics=False)

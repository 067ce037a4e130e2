"""Two brokers on one metadata store and one set of bookies: one writer, nothing lost, clients follow.

1. Owners change under producers and consumers: in good order, by nobody for a while, behind the back of one that goes
on or stalls, by a crash; lookups redirect, and lead to brokers that are gone. Nobody but the owner has a topic open,
but for an owner that was not told. 2. All is settled: every send ends, every message comes. 3. Each receipt is compared
with what is stored; what was acknowledged with a response came to no later consumer.
"""

from __future__ import annotations

import asyncio

from geminga import sim
from geminga.broker.ownership.ports import HERE
from geminga.model.errors import GemingaError
from geminga.sim.seeds import run_seeds
from support.clusters.two_brokers import BROKERS, NAMES, Cluster, two_brokers
from support.house.weekly_sample import SeedCheck, few_and_many

#: What must have happened in every run of some seeds.
CHANGES = tuple(
    f"owner.{change}" for change in ("given", "nobody", "seized", "stalled", "crashed", "asking", "misled", "unloaded")
)


@few_and_many(range(508), least=3, most=60, many=range(8, 508), hits_min=100, timeout_s=3000)
def test_one_writer_nothing_lost_clients_follow(check: SeedCheck) -> None:
    check(two_brokers, CHANGES)


async def claims_while_loading(world: sim.SimWorld) -> None:
    """Two brokers that both believe in their right load one topic at once: no loser keeps what it has loaded."""
    cluster = await Cluster(world).start()
    name, rng = NAMES[0], world.rng("claims")
    for view in cluster.table.brokers.values():
        view.beliefs[str(name)] = HERE

    async def load(broker: str, after_s: float) -> None:
        async def get(_: sim.SimNode) -> None:
            await world.sleep(after_s)
            try:
                await cluster.brokers[broker].registry.get(name, create=True)
            except GemingaError:
                world.points.hits["not loaded"] += 1

        await world.node(broker).run(get)

    for _ in range(20):
        await asyncio.gather(*(load(broker, rng.uniform(0, 0.2)) for broker in BROKERS))
        await world.sleep(1)
        for broker in BROKERS:
            topic = cluster.brokers[broker].topics.get(str(name))
            assert topic is None or not topic.ledger.tenure.is_fenced, f"{broker} keeps a topic that is another's"
            world.points.hits["given up"] += topic is None
        for broker in BROKERS:
            await world.node(broker).run(lambda _, broker=broker: cluster.brokers[broker].registry.unload(name))


def test_a_topic_that_is_claimed_while_it_is_loaded_is_not_kept() -> None:
    run_seeds(claims_while_loading, range(6)).check(hits_min=1, labels=("not loaded", "given up"))

"""One broker in a cluster: who comes second waits or is refused, and who was taken over ends."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.app.sole_broker import BROKERS_PATH, WAIT_MARGIN_S, BrokerData, SoleBroker
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.errors import ConflictError
from geminga.runtime import Runtime, wait_ms
from geminga.sim import SimNode, SimWorld

SESSION_MS = 6000
DATA = BrokerData("http://a:8080", "pulsar://a:6650", "1.2", 77)
A, B = "a:8080", "b:8080"


class Cluster:
    """A store that several brokers share."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.server = MemoryMetadata()
        self.looking = self.session()
        self.lost: list[str] = []

    def session(self, faults: MetadataFaults | None = None) -> MemoryMetadataStore:
        return MemoryMetadataStore(self.runtime, self.server, faults)

    def broker(self, session: MemoryMetadataStore) -> SoleBroker:
        return SoleBroker(session, SESSION_MS, lambda _part, error: self.lost.append(str(error)))

    async def there(self) -> list[str]:
        return await self.looking.children(BROKERS_PATH)


def run(main: Callable[[Cluster, Callable[[], float]], Awaitable[None]]) -> None:
    async def scenario(world: SimWorld) -> None:
        async def in_node(node: SimNode) -> None:
            await main(Cluster(node.runtime), node.runtime.clock.monotonic)

        await world.node("broker").run(in_node)

    sim.run(scenario, seed=31)


def test_registers_under_its_address_with_pulsars_fields_and_leaves() -> None:
    async def main(cluster: Cluster, now: Callable[[], float]) -> None:
        broker = cluster.broker(cluster.session())
        await broker.wait_until_alone()
        await broker.begin(A, DATA)
        node = await cluster.looking.get(f"{BROKERS_PATH}/{A}")
        assert node is not None
        assert node.stat.is_ephemeral
        found = json.loads(node.value)
        assert (found["webServiceUrl"], found["pulsarServiceUrl"]) == ("http://a:8080", "pulsar://a:6650")
        assert found["brokerVersionString"] == "geminga-1.2"
        await broker.end()
        assert await cluster.there() == []
        assert cluster.lost == []

    run(main)


@pytest.mark.parametrize("name", [A, B])
def test_second_one_is_refused_and_takes_nothing(name: str) -> None:
    async def main(cluster: Cluster, now: Callable[[], float]) -> None:
        first, second = cluster.broker(cluster.session()), cluster.broker(cluster.session())
        await first.begin(A, DATA)
        since = now()
        with pytest.raises(ConflictError, match=r"a:8080 is registered as a broker of this cluster.*Stop it first"):
            await second.wait_until_alone()
        assert now() - since >= SESSION_MS / 1000 + WAIT_MARGIN_S
        with pytest.raises(ConflictError):
            await second.begin(name, DATA)
        await second.end()
        assert await cluster.there() == [A]

    run(main)


def test_waits_for_the_session_of_one_that_was_killed() -> None:
    async def main(cluster: Cluster, now: Callable[[], float]) -> None:
        dead = cluster.session()
        await cluster.broker(dead).begin(A, DATA)
        successor = cluster.broker(cluster.session())
        dead.expire_session(outage_ms=60_000)
        await successor.wait_until_alone()
        await successor.begin(A, DATA)
        assert await cluster.there() == [A]
        await successor.end()

    run(main)


def test_of_two_at_the_same_moment_the_older_stays() -> None:
    async def main(cluster: Cluster, now: Callable[[], float]) -> None:
        first, second = cluster.broker(cluster.session()), cluster.broker(cluster.session())
        await first.wait_until_alone()
        await second.wait_until_alone()
        await first.begin(B, DATA)
        await wait_ms(10)
        with pytest.raises(ConflictError, match="b:8080 was registered first"):
            await second.begin(A, DATA)
        assert await cluster.there() == [B]
        await first.end()

    run(main)


def test_comes_back_after_its_session_expired() -> None:
    async def main(cluster: Cluster, now: Callable[[], float]) -> None:
        session = cluster.session()
        broker = cluster.broker(session)
        await broker.begin(A, DATA)
        session.expire_session(outage_ms=3000)
        assert await cluster.there() == []
        await wait_ms(10_000)
        assert await cluster.there() == [A]
        assert cluster.lost == []
        await broker.end()

    run(main)


def test_ends_when_another_took_over_while_its_session_was_gone() -> None:
    async def main(cluster: Cluster, now: Callable[[], float]) -> None:
        session = cluster.session()
        broker, successor = cluster.broker(session), cluster.broker(cluster.session())
        await broker.begin(A, DATA)
        session.expire_session(outage_ms=3000)
        await successor.wait_until_alone()
        await successor.begin(B, DATA)
        await wait_ms(10_000)
        assert len(cluster.lost) == 1
        assert await cluster.there() == [B]
        await broker.end()
        assert await cluster.there() == [B]
        await successor.end()

    run(main)


def test_an_apache_broker_counts() -> None:
    async def main(cluster: Cluster, now: Callable[[], float]) -> None:
        apache = cluster.session()
        await apache.put(f"{BROKERS_PATH}/x:8080", b"{}", expected_version=MUST_NOT_EXIST, ephemeral=True)
        with pytest.raises(ConflictError, match="x:8080"):
            await cluster.broker(cluster.session()).wait_until_alone()

    run(main)


def test_unknown_outcomes_and_lost_connections_do_not_end_it() -> None:
    async def main(cluster: Cluster, now: Callable[[], float]) -> None:
        for _ in range(20):
            session = cluster.session(MetadataFaults(unknown_before_percent=30, unknown_after_percent=30))
            broker = cluster.broker(session)
            await broker.begin(A, DATA)
            assert await cluster.there() == [A]
            session.expire_session(outage_ms=100)
            await wait_ms(20_000)
            assert await cluster.there() == [A]
            await broker.end()
            await session.close()
        assert cluster.lost == []

    run(main)

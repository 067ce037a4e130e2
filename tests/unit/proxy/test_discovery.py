"""Which brokers are registered in the metadata store."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga import sim
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import UnavailableError
from geminga.proxy.core.targets import Target
from geminga.proxy.discovery import FIRST_PATIENCE_S, FRESH_S, PATIENCE_S, RegisteredBrokers

PLAIN = {
    "pulsarServiceUrl": "pulsar://b1:6650",
    "webServiceUrl": "http://b1:8080",
    "advertisedListeners": {"out": {"brokerServiceUrl": "pulsar://out1:16650"}},
}
BOTH = {
    "pulsarServiceUrl": "pulsar://b2:6650",
    "pulsarServiceUrlTls": "pulsar+ssl://b2:6651",
    "webServiceUrlTls": "https://b2:8443",
}


async def register(store: MemoryMetadataStore, name: str, value: bytes) -> None:
    await store.put(f"/loadbalance/brokers/{name}", value, expected_version=None)


def in_store(story) -> None:
    async def main(world: sim.SimWorld) -> None:
        node = world.node("door")

        async def on_node(_: sim.SimNode) -> None:
            store = MemoryMetadataStore(node.runtime)
            await register(store, "b1:8080", json.dumps(PLAIN).encode())
            await register(store, "b2:8080", json.dumps(BOTH).encode())
            await register(store, "b3:8080", b"no registration")
            await register(store, "b5:8080", b"[" * 5000)
            await register(store, "b4:8080", b'{"pulsarServiceUrl": "nonsense", "advertisedListeners": [1]}')
            await story(world, store, node.runtime.clock.monotonic)
            await store.close()

        await node.run(on_node)

    sim.run(main)


def test_entries_come_in_turn_and_only_brokers_that_are_there_are_active() -> None:
    async def story(world, store, monotonic) -> None:
        plain = RegisteredBrokers(store, monotonic, uses_tls=False)
        assert {await plain.entry() for _ in range(4)} == {Target("b1", 6650), Target("b2", 6650)}
        assert await plain.web_url() == "http://b1:8080"
        secured = RegisteredBrokers(store, monotonic, uses_tls=True)
        assert {await secured.entry() for _ in range(4)} == {Target("b2", 6651)}
        assert await secured.web_url() == "https://b2:8443"
        for target, is_active in (
            (Target("b1", 6650), True),
            (Target("b2", 6651), True),
            (Target("out1", 16650), True),
            (Target("b1", 6651), False),
            (Target("x", 6650), False),
        ):
            assert await plain.is_active(target) is is_active

    in_store(story)


def test_what_changed_is_seen_in_a_while() -> None:
    async def story(world, store, monotonic) -> None:
        plain = RegisteredBrokers(store, monotonic, uses_tls=False)
        await plain.entry()
        for name in ("b1", "b2"):
            await store.delete(f"/loadbalance/brokers/{name}:8080")
        await world.sleep(FRESH_S + 0.1)
        with pytest.raises(UnavailableError, match="no broker is registered"):
            await plain.entry()
        with pytest.raises(UnavailableError, match="with webServiceUrl"):
            await plain.web_url()
        assert not await plain.is_active(Target("b1", 6650))

    in_store(story)


def test_a_store_that_does_not_answer_is_said() -> None:
    async def story(world, store, monotonic) -> None:
        plain = RegisteredBrokers(store, monotonic, uses_tls=False)
        await store.close()
        with pytest.raises(UnavailableError, match="metadata store"):
            await plain.entry()

    in_store(story)


def test_a_store_that_never_answered_is_not_waited_for_without_end() -> None:
    """Each who asks is told in time, and the first answer, however late, is taken."""

    async def story(world, store, monotonic) -> None:
        plain = RegisteredBrokers(store, monotonic, uses_tls=False)
        store.faults.delay_ms_max = 400_000
        for _ in range(2):
            began_s = monotonic()
            with pytest.raises(UnavailableError, match="does not answer"):
                await asyncio.wait_for(plain.entry(), 2 * FIRST_PATIENCE_S)
            assert monotonic() - began_s <= FIRST_PATIENCE_S + 0.1
        store.faults.delay_ms_max = 0
        await world.sleep(400)
        assert await plain.entry() in {Target("b1", 6650), Target("b2", 6650)}

    in_store(story)


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_while_the_store_is_away_the_brokers_that_were_there_are_asked(how: str) -> None:
    """They go on without it, too: who comes meanwhile, or connects again, is let through."""

    async def story(world, store, monotonic) -> None:
        plain = RegisteredBrokers(store, monotonic, uses_tls=False)
        await plain.entry()
        await world.sleep(FRESH_S + 0.1)
        if how == "refuses":
            await store.close()
        else:
            store.faults.delay_ms_max = 1 << 40
        for _ in range(20):
            began_s = monotonic()
            assert {await plain.entry() for _ in range(2)} == {Target("b1", 6650), Target("b2", 6650)}
            assert await plain.is_active(Target("b1", 6650))
            assert await plain.web_url() == "http://b1:8080"
            assert monotonic() - began_s <= PATIENCE_S
            await world.sleep(FRESH_S + 0.1)

    in_store(story)


def test_the_store_is_looked_at_again_when_it_answers() -> None:
    async def story(world, store, monotonic) -> None:
        plain = RegisteredBrokers(store, monotonic, uses_tls=False)
        await plain.entry()
        store.faults.delay_ms_max = 40_000
        await world.sleep(FRESH_S + 0.1)
        await plain.entry()
        store.faults.delay_ms_max = 0
        await store.delete("/loadbalance/brokers/b1:8080")
        await world.sleep(200)
        await plain.entry()
        assert not await plain.is_active(Target("b1", 6650))

    in_store(story)

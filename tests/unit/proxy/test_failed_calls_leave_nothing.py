"""What a failed request held is gone with its error: no cycle of traceback and future waits for the collector."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import ServerError, UnavailableError
from geminga.proxy.discovery import RegisteredBrokers
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.house.uncollected import uncollected
from support.worlds.proxy_world import Type, in_world, let_in

TOPIC = "persistent://public/default/t"


@pytest.mark.parametrize("answer", ["refusal", "nothing"])
def test_client_whose_broker_does_not_welcome_it_leaves_nothing(answer) -> None:
    refusal = commands.error(commands.UNREQUESTED, ServerError.AUTHORIZATION_ERROR, "no proxy here")

    async def story(proxy, new_client) -> None:
        async def ask() -> None:
            client = await let_in(new_client)
            for number in range(3):
                client.say(Type.LOOKUP, topic=TOPIC, request_id=number)
            for _ in range(3):
                assert (await client.next()).lookupTopicResponse.message
            client.transport.abort()

        await ask()
        with uncollected() as found:
            await ask()
            await ask()
            await next_turn()
        assert found == []

    def broker(command: pb.BaseCommand) -> list[bytes]:
        return [refusal] if answer == "refusal" else []

    in_world(story, broker)


def test_store_that_does_not_say_which_brokers_there_are_leaves_nothing() -> None:
    async def story(node: sim.SimNode) -> None:
        store = MemoryMetadataStore(node.runtime)
        brokers = RegisteredBrokers(store, node.runtime.clock.monotonic, uses_tls=False)
        await store.close()
        with uncollected() as found:
            for _ in range(3):
                with pytest.raises(UnavailableError):
                    await brokers.entry()
            await next_turn()
        assert found == []

    async def main(world: sim.SimWorld) -> None:
        await world.node("door").run(story)

    sim.run(main)

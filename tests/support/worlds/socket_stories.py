"""Stories of WebSockets at a broker in virtual time: how they begin and end, and what most of them do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga.broker.websocket.core.parameters import consumer_parameters, producer_parameters
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import seconds
from support.worlds.web_sockets import Peer, SocketWorld

TOPIC = "persistent://public/default/t"
SHARED = consumer_parameters({"subscriptionType": "Shared"})
#: A payload of 30,000 bytes.
LARGE = "eHh4" * 10_000


def with_sockets(story: Callable[[SocketWorld, BrokerWorld], Awaitable[None]], **limits: object) -> None:
    async def run(world: BrokerWorld) -> None:
        sockets = SocketWorld(world, **limits)
        await story(sockets, world)
        await sockets.service.close()
        assert not list(sockets.service.sessions)
        assert sockets.clients.count == 0
        await seconds(1)
        assert not list(world.broker.connections.open)

    run_with_broker(run)


async def producer(sockets: SocketWorld, role: str = "", **query: str) -> Peer:
    given = producer_parameters(query)
    return await sockets.socket(await sockets.service.open_producer(sockets.admitted(role), TOPIC, given))


async def consumer(sockets: SocketWorld, role: str = "", **query: str) -> Peer:
    given = consumer_parameters({"subscriptionType": "Shared", **query})
    return await sockets.socket(await sockets.service.open_consumer(sockets.admitted(role), TOPIC, "s", given))


async def published(sockets: SocketWorld, count: int) -> None:
    sending = await producer(sockets)
    for number in range(count):
        sending.tell(payload=LARGE, context=str(number))
    await sending.told(count)

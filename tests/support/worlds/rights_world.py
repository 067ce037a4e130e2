"""A broker that decides by what is stored, and an operator who gives and takes permissions by REST."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.ports import Access
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.deciding import TakenAtTheirWord
from support.worlds.broker_world import BrokerWorld, Client, run_with_broker
from support.worlds.rest_world import Answer, ask, rest_application

ACCESS = Access(authenticator=TakenAtTheirWord(), authorizer=ANONYMOUS_MAY)
NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "persistent://public/default/t"
PATHS = {
    TOPIC: "/admin/v2/persistent/public/default/t",
    "non-persistent://public/default/t": "/admin/v2/non-persistent/public/default/t",
}

Scenario = Callable[["Story"], Awaitable[None]]


class Story:
    """A broker, and an operator who may do everything."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.application: ASGIApp = rest_application(world.broker)

    async def do(self, method: str, path: str, body: object = None, *, status: int = 204) -> Answer:
        answer = await ask(
            self.application, method, path, b"" if body is None else json.dumps(body).encode(), role="root"
        )
        assert answer.status == status, answer
        return answer

    async def read(self, path: str) -> object:
        return json.loads((await self.do("GET", path, status=200)).body)

    async def grant(self, role: str, *actions: str, at: str = NAMESPACE) -> None:
        await self.do("POST", f"{at}/permissions/{role}", actions)

    async def revoke(self, role: str, at: str = NAMESPACE) -> None:
        await self.do("DELETE", f"{at}/permissions/{role}")

    async def producer(self, role: str, topic: str = TOPIC) -> Client:
        client = await self.world.client(role)
        await client.create_producer(topic, producer_name=role)
        return client

    async def consumer(self, role: str, topic: str = TOPIC, subscription: str = "sub") -> Client:
        client = await self.world.client(role)
        await client.subscribe(topic, subscription=subscription, subType=pb.CommandSubscribe.Shared)
        return client


def tell(scenario: Scenario, access: Access = ACCESS, **settings: object) -> None:
    async def run(world: BrokerWorld) -> None:
        await scenario(Story(world))

    settings = {"super_user_roles": ("root",), **settings}
    run_with_broker(run, access=access, authorization_enabled=True, **settings)


def was_sent(client: Client, kind: int) -> bool:
    return any(command.type == kind for command, _ in client.received)


async def refusal(client: Client) -> str:
    error = await client.error()
    assert error.error == pb.AuthorizationError
    return error.message

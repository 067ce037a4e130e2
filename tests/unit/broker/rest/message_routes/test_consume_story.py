"""Clients that come, vanish, give back and acknowledge: nothing is lost, and what is acknowledged is over."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from typing import Any

import pytest

from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from unit.broker.rest.message_routes.test_consume import SUBSCRIPTION, Web, publish_batch

STEPS = 130
LEASE_MS = 1000


class Client:
    """What one client knows: the consumer that it made, and what it received."""

    def __init__(self, web: Web, kind: str, choose: random.Random, over: set[str]) -> None:
        self.web = web
        self.kind = kind
        self.choose = choose
        #: Acknowledged by anybody, by payload.
        self.over = over
        self.consumer = ""
        self.received: dict[str, str] = {}

    async def act(self) -> None:
        """One thing, with whatever comes of it."""
        act = self.choose.choice(
            [*[self.receive] * 3, *[self.acknowledge] * 3, self.give_back, self.leave, self.vanish]
        )
        if not self.consumer:
            options = {"initialPosition": "earliest", "leaseMs": LEASE_MS, "type": self.kind}
            status, answer = await self.web.call("POST", SUBSCRIPTION, options)
            self.received = {}
            if status == 201:
                self.consumer = f"{SUBSCRIPTION}/{answer['consumer']}"
            return
        await act()

    async def ask(self, rest: str, body: Any = None, method: str = "POST") -> Any:
        status, answer = await self.web.call(method, f"{self.consumer}{rest}", body)
        if status == 404:
            self.consumer = ""
            return None
        assert status in (200, 204, 409), answer
        return answer if status == 200 else None

    async def receive(self) -> None:
        query = f"max={self.choose.randint(1, 5)}&maxBytes={self.choose.choice((1, 400, 100_000))}"
        answer = await self.ask(f"/receive?{query}")
        for one in () if answer is None else answer["messages"]:
            assert one["payload"] not in self.over, f"{one['payload']} was acknowledged, and came again"
            self.received[one["messageId"]] = one["payload"]

    async def acknowledge(self) -> None:
        some = self.choose.sample(sorted(self.received), min(len(self.received), 3))
        answer = await self.ask("/acknowledge", {"messageIds": some})
        if answer is not None:
            self.over.update(self.received[one] for one in some if one not in answer["unknown"])
        for one in some:
            self.received.pop(one)

    async def give_back(self) -> None:
        some = self.choose.sample(sorted(self.received), min(len(self.received), 2))
        await self.ask("/negativeAcknowledge", {"messageIds": some} if self.choose.random() < 0.8 else {"all": True})

    async def leave(self) -> None:
        if self.choose.random() < 0.3:
            await self.ask("", method="DELETE")
            self.consumer = ""

    async def vanish(self) -> None:
        if self.choose.random() < 0.3:
            self.consumer = ""


@pytest.mark.parametrize(("kind", "seed"), [("Shared", 1), ("Failover", 2), ("Key_Shared", 3)])
def test_nothing_is_lost_and_nothing_acknowledged_comes_again(kind: str, seed: int) -> None:
    choose = random.Random(seed)

    async def main(world: BrokerWorld) -> None:
        web, over, published = Web(world), set[str](), []
        clients = [Client(web, kind, choose, over) for _ in range(3)]
        await web.make(leaseMs=LEASE_MS, type=kind)  # the subscription is there before the first message
        for step in range(STEPS):
            if step % 5 == 0:
                published.append(f"m{step}")
                await web.produce(published[-1], key=f"k{step % 7}")
            if step % 20 == 0:
                batch = [f"b{step}-{index}" for index in range(4)]
                published += batch
                await publish_batch(web, *(one.encode() for one in batch))
            if step % 50 == 49:
                await world.broker.registry.unload(TopicName.parse(TOPIC))
            await choose.choice(clients).act()
            await wait_ms(choose.choice((0, 10, 100)))
        await wait_ms(2 * LEASE_MS)
        last = await web.make(type=kind)
        left: list[str] = []
        while found := await web.payloads(last, "waitMs=3000&max=1000"):
            left += found
        assert len(left) == len(set(left))
        assert not over & set(left)
        assert over | set(left) == set(published)
        assert len(over) >= 5, "the story acknowledges"
        assert (await web.call("DELETE", last))[0] == 204
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=False)
        assert not topic.subscriptions["s"].consumers

    run_with_broker(main, deduplication=False, active_consumer_failover_delay_ms=0)

"""Rights at messages over HTTP: taken while a request waits, and of whom a proxy asks for."""

from __future__ import annotations

import json
from dataclasses import replace

from geminga.runtime import next_turn, spawn, wait_ms
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.rest_world import Answer, ask, http_scope
from support.worlds.rights_world import ACCESS, NAMESPACE, Scenario, Story, tell
from unit.broker.rest.message_routes.test_tail import Tail

TOPIC = "/topics/persistent/public/default/t"
NAME = "persistent://public/default/t"
CONSUMERS = f"{TOPIC}/subscriptions/jane-1/consumers"


async def call(story: Story, method: str, path: str, body: object = None, *, role: str, original: str = "") -> Answer:
    return await ask(story.application, method, path, json.dumps(body or {}).encode(), role=role, original=original)


def tell_of_proxies(scenario: Scenario) -> None:
    """With ``gate``, a proxy that is a super-user."""

    async def run(world: BrokerWorld) -> None:
        await scenario(Story(world))

    access = replace(ACCESS, proxy_roles=frozenset({"gate"}))
    run_with_broker(run, access=access, authorization_enabled=True, super_user_roles=("root", "gate"))


def test_who_loses_the_right_while_it_waits_gets_no_message() -> None:
    """The request was allowed, and may last for a minute."""

    async def scenario(story: Story) -> None:
        await story.grant("jane", "consume")
        made = json.loads((await call(story, "POST", CONSUMERS, role="jane")).body)
        receive = f"{CONSUMERS}/{made['consumer']}/receive?waitMs=60000"
        waiting = spawn(call(story, "POST", receive, role="jane"), name="who receives")
        await wait_ms(1000)
        await story.revoke("jane")
        message = {"messages": [{"payload": "secret"}]}
        assert (await call(story, "POST", TOPIC, message, role="root")).status == 200
        answer = await waiting
        assert b"secret" not in answer.body
        assert (answer.status, answer.reason) == (401, "Unauthorized to consume for jane")
        # It is for whoever may have it, at once.
        made = json.loads((await call(story, "POST", CONSUMERS, role="root")).body)
        answer = await call(story, "POST", f"{CONSUMERS}/{made['consumer']}/receive?waitMs=1000", role="root")
        assert [one["payload"] for one in json.loads(answer.body)["messages"]] == ["secret"]

    tell(scenario)


def test_consumer_that_nobody_uses_at_the_moment_ends_with_its_right() -> None:
    """Else it would keep what it holds, and an exclusive subscription, as long as its lease may be: ten minutes."""

    async def scenario(story: Story) -> None:
        for role in ("jane", "jim"):
            await story.grant(role, "consume")
        exclusive = {"type": "Exclusive", "initialPosition": "earliest", "leaseMs": 600_000}
        made = json.loads((await call(story, "POST", CONSUMERS, exclusive, role="jane")).body)
        assert (await call(story, "POST", TOPIC, {"messages": [{"payload": "x"}]}, role="root")).status == 200
        answer = await call(story, "POST", f"{CONSUMERS}/{made['consumer']}/receive?waitMs=1000", role="jane")
        assert [one["payload"] for one in json.loads(answer.body)["messages"]] == ["x"]
        await story.grant("others", "consume")
        assert (await call(story, "POST", CONSUMERS, exclusive, role="jim")).status == 412
        await story.revoke("jane")
        answer = await call(story, "POST", CONSUMERS, exclusive, role="jim")
        assert answer.status == 201, answer
        made = json.loads(answer.body)
        answer = await call(story, "POST", f"{CONSUMERS}/{made['consumer']}/receive?waitMs=1000", role="jim")
        assert [one["payload"] for one in json.loads(answer.body)["messages"]] == ["x"]
        assert story.world.broker.authorization.lost_rights.sent_away == 1
        assert (await call(story, "DELETE", f"{CONSUMERS}/{made['consumer']}", role="jim")).status == 204
        assert not story.world.broker.access.others

    tell(scenario)


def test_consumer_that_is_being_made_when_the_right_goes_ends_too() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "consume")
        making = spawn(call(story, "POST", CONSUMERS, {"leaseMs": 600_000}, role="jane"), name="who makes one")
        while not story.world.broker.access.others:
            await next_turn()
        await story.revoke("jane")
        await making
        await wait_ms(1000)
        assert not story.world.broker.access.others
        assert not any(each.consumers for each in story.world.broker.topics[NAME].subscriptions.values())

    tell(scenario)


def test_tail_ends_with_the_right() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "consume")
        await story.do("PUT", "/admin/v2/persistent/public/default/t")
        found = Tail()
        following = spawn(story.application(tail_of("jane"), found.receive, found.send), name="tail")
        await wait_ms(100)
        assert found.status == 200, found.text
        await story.revoke("jane")
        assert (await call(story, "POST", TOPIC, {"messages": [{"payload": "x"}]}, role="root")).status == 200
        await following
        assert (found.payloads, found.events[-1]["event"]) == ([], "end")
        assert not story.world.broker.access.others

    tell(scenario)


def tail_of(role: str, original: str = "") -> dict[str, object]:
    headers = [(b"authorization", role.encode())]
    headers += [(b"x-original-principal", original.encode())] if original else []
    return {**http_scope("GET", f"{TOPIC}/tail", headers), "client": ("10.0.0.7", 1)}


def test_tail_through_a_proxy_begins_with_the_role_that_it_asks_for_where_subscriptions_must() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "consume")
        await story.do("PUT", "/admin/v2/persistent/public/default/t")
        await story.do("POST", f"{NAMESPACE}/subscriptionAuthMode", "Prefix")
        found = Tail()
        following = spawn(story.application(tail_of("gate", "jane"), found.receive, found.send), name="tail")
        await wait_ms(100)
        assert found.status == 200, found.text
        found.hung_up.set()
        await following

    tell_of_proxies(scenario)


def test_consumer_is_of_whom_the_proxy_made_it_for() -> None:
    async def scenario(story: Story) -> None:
        for role in ("jane", "jim"):
            await story.grant(role, "consume")
        made = json.loads((await call(story, "POST", CONSUMERS, role="gate", original="jane")).body)
        receive = f"{CONSUMERS}/{made['consumer']}/receive"
        assert (await call(story, "POST", receive, role="gate", original="jane")).status == 200
        assert (await call(story, "POST", receive, role="gate", original="jim")).status == 404

    tell_of_proxies(scenario)

"""A live tail: where it begins, how it goes on, and that it ends with its client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.core.actions import TopicOperation
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import Access, Decision, Denied
from geminga.broker.rest.calls.context import MessageLimits
from geminga.broker.rest.message_routes import consumers
from geminga.broker.rest.message_routes.tail import HEARTBEAT_S
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn, wait_ms
from support.house.deciding import TakenAtTheirWord
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.rest_world import http_scope
from unit.broker.authentication import test_connections as connections
from unit.broker.rest.message_routes.test_consume import PATH, Web, publish_batch, room_of

TAIL = f"{PATH}/tail"


class Tail:
    """A connection that follows a topic."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self.is_over = False
        self.hung_up = asyncio.Event()
        #: Clear: the client takes nothing.
        self.takes = asyncio.Event()
        self.takes.set()
        self._bodies = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive(self) -> dict[str, Any]:
        if self._bodies:
            return self._bodies.pop()
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.takes.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        self.text += message["body"].decode()
        self.is_over = not message.get("more_body", False)

    @property
    def events(self) -> list[dict[str, str]]:
        """Those that a browser would hand out, with the last id so far."""
        found, last = [], ""
        # What no empty line ends is none.
        for block in self.text.split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            last = fields.get("id", last)
            if "data" in fields:
                found.append({"event": "message", **fields, "id": last})
        return found

    @property
    def payloads(self) -> list[str]:
        return [json.loads(one["data"])["payload"] for one in self.events if one["event"] == "message"]


@asynccontextmanager
async def followed(
    web: Web, query: str = "", *, path: str = TAIL, method: str = "GET", last: str = "", role: str = ""
) -> AsyncIterator[Tail]:
    found = Tail()
    headers = [(b"last-event-id", last.encode())] if last else []
    headers += [(b"authorization", role.encode())] if role else []
    scope = {**http_scope(method, f"{path}?{query}", headers), "client": ("10.0.0.7", 1)}
    running = spawn(web.application(scope, found.receive, found.send), name="tail")
    await wait_ms(50)
    yield found
    found.takes.set()
    found.hung_up.set()
    await running


def run(scenario: Callable[[Web], Awaitable[None]], *, context: dict[str, Any] | None = None, **settings: Any) -> None:
    async def main(world: BrokerWorld) -> None:
        web = Web(world, **(context or {}))
        await scenario(web)
        # Nothing stays of who is gone.
        for topic in world.broker.registry.loaded.values():
            assert not [name for name in topic.subscriptions if "tail" in name]

    run_with_broker(main, **settings)


def test_what_comes_from_now_on_is_told_as_events_with_ids() -> None:
    async def scenario(web: Web) -> None:
        await web.produce("before")
        async with followed(web) as found:
            assert (found.status, found.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            assert "content-length" not in found.headers
            assert found.text.startswith("retry: 1000\nid: 1:0:-1\n\n")
            ids = await web.produce("a", "b\nc", key="k")
            await wait_ms(50)
            assert found.payloads == ["a", "b\nc"]
            assert [one["id"] for one in found.events] == ids
            assert json.loads(found.events[0]["data"])["key"] == "k"
            assert not found.is_over

    run(scenario)


def test_it_goes_on_behind_the_last_event_without_a_gap_or_one_twice() -> None:
    async def scenario(web: Web) -> None:
        first = await web.produce("a")
        await publish_batch(web, b"b", b"c", b"d")
        await web.produce("e")
        async with followed(web, "from=earliest") as found:
            assert found.payloads == ["a", "b", "c", "d", "e"]
            ids = [one["id"] for one in found.events]
        for index, last in enumerate(ids):
            async with followed(web, "from=earliest", last=last) as found:
                assert found.payloads == ["a", "b", "c", "d", "e"][index + 1 :], last
        async with followed(web, f"from={first[0]}") as found:
            assert found.payloads == ["b", "c", "d", "e"]
            assert "event: gap" not in found.text

    run(scenario)


def test_client_that_was_cut_off_before_the_first_message_goes_on_where_it_began() -> None:
    async def scenario(web: Web) -> None:
        await web.produce("before")
        async with followed(web) as found:
            last = found.text.split("id: ")[1].split("\n")[0]
        await web.produce("between")
        async with followed(web, last=last) as found:
            assert found.payloads == ["between"]

    run(scenario)


def test_messages_that_may_have_been_trimmed_are_told_as_a_gap() -> None:
    async def scenario(web: Web) -> None:
        await web.produce("a")
        topic: Any = await web.world.broker.registry.get(TopicName.parse(TOPIC), create=False)
        ledger_id = topic.ledger.ledgers.infos[0].ledger_id
        async with followed(web, last=f"{ledger_id - 1}:7:-1") as found:
            (gap,) = [one for one in found.events if one["event"] == "gap"]
            assert json.loads(gap["data"]) == {"after": f"{ledger_id - 1}:7:-1"}
            assert found.payloads == ["a"]

    run(scenario)


def test_partitions_are_followed_together_and_each_goes_on_by_itself() -> None:
    async def scenario(web: Web) -> None:
        await web.world.broker.administered.partitions.create(TopicName.parse(TOPIC), 2)
        async with followed(web) as found:
            await web.produce("a", "b", "c", "d")
            await wait_ms(50)
            assert sorted(found.payloads) == ["a", "b", "c", "d"]
            last = found.events[1]["id"]
            rest = found.payloads[2:]
        async with followed(web, last=last) as found:
            assert sorted(found.payloads) == sorted(rest)

    run(scenario)


def test_client_that_takes_nothing_is_not_read_ahead_for_and_one_that_hangs_up_is_gone() -> None:
    async def scenario(web: Web) -> None:
        async with followed(web) as found:
            found.takes.clear()
            for _ in range(10):
                await web.produce(*("x" * 20_000 for _ in range(20)))
            await wait_ms(1000)
            topic: Any = web.world.broker.registry.loaded[str(TopicName.parse(TOPIC))]
            (subscription,) = topic.subscriptions.values()
            (consumer,) = subscription.consumers
            sent = consumer.bytes_out
            assert sent < 4_000_000
            await wait_ms(1000)
            assert consumer.bytes_out == sent
            found.takes.set()
            await wait_ms(1000)
            assert len(found.payloads) == 200

    run(scenario, dispatcher_max_read_size_bytes=200_000)


def test_tail_that_takes_nothing_gives_up_what_was_read_for_it_where_others_need_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumers, "INBOX_BYTES_MAX", 100_000)

    async def scenario(web: Web) -> None:
        consumer = await web.make(f"{PATH}/subscriptions/s/consumers")
        async with followed(web) as stuck:
            await web.produce("first")
            await wait_ms(50)
            stuck.takes.clear()
            for _ in range(3):
                await web.produce(*("x" * 50_000 for _ in range(3)))
                await wait_ms(50)
            assert await web.receive(consumer, "waitMs=100") == []
            await wait_ms(6000)
            found = await web.receive(consumer, "waitMs=1000")
            assert found[0]["payload"] == "first"
            stuck.takes.set()
            await wait_ms(50)
            # Half of an event was on its way: it stays half, which is none, and the stream ends.
            assert [len(one) for one in stuck.payloads] == [5, 50_000]
            assert stuck.text.endswith("xxx")
            assert stuck.is_over
            async with followed(web, last=stuck.events[-1]["id"]) as again:
                assert [len(one) for one in again.payloads] == [50_000] * 8

    run(scenario)


def test_events_that_are_larger_than_what_was_read_count_with_their_own_size() -> None:
    async def scenario(web: Web) -> None:
        async with followed(web) as stuck:
            room = room_of(web)
            stuck.takes.clear()
            await publish_batch(web, *(b"" for _ in range(1000)))
            await wait_ms(50)
            # What the client has half taken is the server's.
            assert room.used_bytes > 150_000
            stuck.takes.set()
            await wait_ms(50)
            assert len(stuck.payloads) == 1000
            assert len(stuck.text) > 180_000
            assert room.used_bytes == 0
            stuck.takes.clear()
            await publish_batch(web, *(b"" for _ in range(1000)))
            await wait_ms(50)
        await wait_ms(50)
        assert room.used_bytes == 0

    run(scenario)


def test_tail_that_has_whole_events_is_told_why_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "INBOX_BYTES_MAX", 100_000)

    async def scenario(web: Web) -> None:
        consumer = await web.make(f"{PATH}/subscriptions/s/consumers")
        async with followed(web) as stuck:
            stuck.takes.clear()
            await web.produce("first")
            await wait_ms(50)
            await web.produce("x" * 120_000)
            await wait_ms(50)
            assert await web.receive(consumer, "waitMs=100") == []
            await wait_ms(6000)
            assert (await web.receive(consumer, "waitMs=1000"))[0]["payload"] == "first"
            stuck.takes.set()
            await wait_ms(50)
            assert stuck.events[0]["id"]
            assert "nothing was taken for too long" in stuck.events[-1]["data"]
            assert stuck.is_over

    run(scenario)


def test_signs_of_life_come_while_nothing_else_does_and_it_ends_after_an_hour() -> None:
    async def scenario(web: Web) -> None:
        async with followed(web) as found:
            await wait_ms(int(HEARTBEAT_S * 1000) + 1000)
            assert found.text.count(": \n\n") == 1
            await wait_ms(3_600_000)
            assert found.is_over
            assert json.loads(found.events[-1]["data"])["reason"] == "an hour is over; come again"

    run(scenario)


class Revocable:
    """Lets everybody do everything until it is told not to."""

    def __init__(self) -> None:
        self.is_revoked = False
        self.asked: list[str] = []

    def decide(self, principal: Principal, action: Any, resource: Any) -> Decision:
        if action is TopicOperation.CONSUME:
            self.asked.append(resource.subscription)
            if self.is_revoked:
                return Denied("no longer")
        decision = ANONYMOUS_MAY.decide(principal, action, resource)
        assert not asyncio.iscoroutine(decision)
        return decision  # type: ignore[return-value]


def test_who_may_no_longer_read_is_told_so_and_the_subscription_is_asked_for_by_its_name() -> None:
    authorizer = Revocable()

    async def main(world: BrokerWorld) -> None:
        web = Web(world)
        async with followed(web, role="alice") as found:
            assert authorizer.asked[0] == ""
            assert authorizer.asked[1].startswith("alice-tail-")
            authorizer.is_revoked = True
            await wait_ms(16_000)
            assert found.is_over
            assert found.events[-1]["event"] == "end"
            assert not world.broker.registry.loaded[str(TopicName.parse(TOPIC))].subscriptions

    run_with_broker(main, access=Access(authenticator=TakenAtTheirWord(), authorizer=authorizer))


def test_token_that_ends_ends_the_tail_that_it_began() -> None:
    async def scenario(world: BrokerWorld) -> None:
        world.access = await connections.access_of(world.runtime, connections.config(token_skew_s=0))
        await world.restart()
        web = Web(world)
        bearer = f"Bearer {connections.token(world, life_s=20).decode()}"
        async with followed(web, role=bearer) as found:
            await web.call("POST", PATH, {"messages": [{"payload": "a"}]}, role=bearer)
            await wait_ms(16_000)
            assert (found.payloads, found.is_over) == (["a"], False)
            # Not only with the next sign of life.
            await wait_ms(4_100)
            assert found.is_over
            assert "expired" in found.events[-1]["data"]

    run_with_broker(scenario)


def test_topic_that_goes_and_one_that_is_terminated_end_it() -> None:
    async def scenario(web: Web) -> None:
        async with followed(web) as found:
            await web.world.broker.registry.unload(TopicName.parse(TOPIC))
            await wait_ms(10)
            assert "the topic moved" in found.events[-1]["data"]
        async with followed(web) as found:
            await web.world.broker.registry.terminate(TopicName.parse(TOPIC))
            await wait_ms(10)
            assert "the topic is terminated" in found.events[-1]["data"]

    run(scenario)


def test_browser_that_was_told_all_of_a_terminated_topic_does_not_come_again() -> None:
    async def scenario(web: Web) -> None:
        await web.produce("a")
        await publish_batch(web, b"b", b"c")
        await web.world.broker.registry.terminate(TopicName.parse(TOPIC))
        async with followed(web, "from=earliest") as found:
            assert found.payloads == ["a", "b", "c"]
            ids = [one["id"] for one in found.events if one["event"] == "message"]
        for last, statuses in zip(ids, (200, 200, 204), strict=True):
            async with followed(web, last=last) as again:
                assert again.status == statuses, last

    run(scenario)


def test_tails_have_a_limit_over_all_and_those_that_can_not_begin_say_why() -> None:
    async def scenario(web: Web) -> None:
        async with followed(web), followed(web, method="HEAD") as head:
            assert (head.status, head.text, head.is_over) == (200, "", True)
            async with followed(web) as refused:
                assert refused.status == 429
                assert "gemingaHttpTailsMax" in refused.text
        for query, told in (("from=3:4", "from is '3:4'"), ("encoding=x", "encoding is 'x'")):
            async with followed(web, query) as refused:
                assert refused.status in (400, 412)
                assert told in refused.text
        async with followed(web, last="x") as refused:
            assert (refused.status, "Last-Event-ID is 'x'" in refused.text) == (400, True)

    run(scenario, context={"message_limits": MessageLimits(tails=1)})


def test_non_persistent_topic_is_followed_as_it_comes() -> None:
    async def scenario(web: Web) -> None:
        path = "/topics/non-persistent/public/default/topic"
        async with followed(web, path=f"{path}/tail") as found:
            await web.produce("a", "b", path=path)
            await wait_ms(10)
            assert found.payloads == ["a", "b"]

    run(scenario)

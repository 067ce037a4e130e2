"""Consumers over HTTP: what they are given, how they acknowledge, and that nothing stays of one that vanishes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.ports import Access
from geminga.broker.rest.calls.context import MessageLimits
from geminga.broker.rest.message_routes import consumers
from geminga.broker.rest.message_routes.consume import LEASE_MS_DEFAULT
from geminga.broker.rest.message_routes.inbox import InboxRoom
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.frame import encode_frame_head
from geminga.wire.pulsar.metadata import encode_entry
from support.house.deciding import TakenAtTheirWord
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.rest_world import ask, http_scope, rest_application

PATH = "/topics/persistent/public/default/topic"
SUBSCRIPTION = f"{PATH}/subscriptions/s/consumers"


class Web:
    """Calls of one broker."""

    def __init__(self, world: BrokerWorld, **settings: Any) -> None:
        self.world = world
        self.application = rest_application(world.broker, **settings)

    async def call(self, method: str, path: str, body: object = None, role: str = "") -> tuple[int, Any]:
        answer = await ask(self.application, method, path, json.dumps(body or {}).encode(), role=role)
        return answer.status, json.loads(answer.body) if answer.body else None

    async def produce(self, *payloads: str, path: str = PATH, **more: Any) -> list[str]:
        status, answer = await self.call("POST", path, {"messages": [{"payload": one, **more} for one in payloads]})
        assert status == 200, answer
        return [one["messageId"] for one in answer["messagePublishResults"]]

    async def make(self, path: str = SUBSCRIPTION, **options: Any) -> str:
        status, answer = await self.call("POST", path, {"initialPosition": "earliest", **options})
        assert status == 201, answer
        return f"{path}/{answer['consumer']}"

    async def receive(self, consumer: str, query: str = "") -> list[dict[str, Any]]:
        status, answer = await self.call("POST", f"{consumer}/receive?{query}")
        assert status == 200, answer
        return answer["messages"]

    async def payloads(self, consumer: str, query: str = "") -> list[str]:
        return [one["payload"] for one in await self.receive(consumer, query)]

    async def acknowledge(self, consumer: str, *ids: str, **more: Any) -> Any:
        status, answer = await self.call("POST", f"{consumer}/acknowledge", {"messageIds": ids, **more})
        assert status == 200, answer
        return answer

    async def give_back(self, consumer: str, *ids: str, **more: Any) -> Any:
        status, answer = await self.call("POST", f"{consumer}/negativeAcknowledge", {"messageIds": ids, **more})
        assert status == 200, answer
        return answer


def run(scenario: Callable[[Web], Awaitable[None]], *, context: dict[str, Any] | None = None, **settings: Any) -> None:
    async def main(world: BrokerWorld) -> None:
        await scenario(Web(world, **(context or {})))

    run_with_broker(main, **settings)


def consumers_of(web: Web, name: str = TOPIC, subscription: str = "s") -> int:
    topic = web.world.broker.registry.loaded[str(TopicName.parse(name))]
    found = topic.subscriptions.get(subscription)
    return 0 if found is None else len(found.consumers)


def room_of(web: Web) -> InboxRoom:
    """What all inboxes share, once the first consumer was made."""
    application = web.application
    while not hasattr(application, "state"):
        application = application._application
    return application.state.message_doors.consumers.room


def test_messages_are_received_with_what_is_said_of_them_and_acknowledged() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make()
        assert (await web.call("POST", f"{consumer}/receive"))[1]["leaseMs"] == LEASE_MS_DEFAULT
        ids = await web.produce("a", "b", "c", key="k", properties={"p": "q"})
        first, second = await web.receive(consumer, "max=2")
        assert (first["messageId"], first["payload"], first["encoding"]) == (ids[0], "a", "text")
        assert (first["key"], first["properties"], first["redeliveryCount"]) == ("k", {"p": "q"}, 0)
        assert (first["producerName"], first["sequenceId"], second["sequenceId"]) == ("RestProducer", 0, 1)
        assert await web.payloads(consumer) == ["c"]
        assert await web.receive(consumer) == []
        answer = await web.acknowledge(consumer, *ids[:2], "9:9:-1")
        assert answer == {"acknowledged": 2, "unknown": ["9:9:-1"]}
        assert (await web.call("DELETE", consumer))[0] == 204
        assert consumers_of(web) == 0
        # Only what was not acknowledged comes to the next one, which is told that it came before.
        (again,) = await web.receive(await web.make())
        assert (again["messageId"], again["redeliveryCount"]) == (ids[2], 1)
        assert (await web.call("POST", f"{consumer}/receive"))[0] == 404

    run(scenario)


def test_lease_that_runs_out_gives_back_what_was_received() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make(leaseMs=1000)
        await web.produce("a")
        assert await web.payloads(consumer) == ["a"]
        await wait_ms(900)
        assert await web.receive(consumer) == []
        await wait_ms(900)
        assert consumers_of(web) == 1
        await wait_ms(200)
        assert consumers_of(web) == 0
        status, answer = await web.call("POST", f"{consumer}/receive")
        assert (status, "lease is over" in answer["reason"]) == (404, True)
        assert await web.payloads(await web.make()) == ["a"]

    run(scenario)


def test_request_waits_for_messages_and_its_lease_does_not_run_meanwhile() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make(leaseMs=1000)
        waiting = spawn(web.payloads(consumer, "waitMs=5000"), name="waits")
        await wait_ms(3000)
        assert not waiting.done()
        status, answer = await web.call("POST", f"{consumer}/receive")
        assert (status, "receiving already" in answer["reason"]) == (409, True)
        await web.produce("a", "b")
        assert await waiting == ["a", "b"]
        clock = web.world.runtime.clock
        began = clock.monotonic()
        assert await web.receive(consumer, "waitMs=700") == []
        assert clock.monotonic() - began == pytest.approx(0.7)

    run(scenario)


def test_what_is_not_asked_for_goes_to_others() -> None:
    async def scenario(web: Web) -> None:
        first, second = await web.make(), await web.make()
        assert await web.receive(first) == []
        await web.produce("a", "b")
        assert await web.payloads(second) == ["a", "b"]

    run(scenario)


def test_order_is_kept_for_one_consumer_who_acknowledges_all_up_to_a_message() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make(type="Exclusive")
        ids = await web.produce("a", "b", "c", "d")
        assert await web.payloads(consumer) == ["a", "b", "c", "d"]
        assert await web.acknowledge(consumer, ids[1], cumulative=True) == {"acknowledged": 1, "unknown": []}
        assert await web.give_back(consumer, ids[3]) == {"givenBack": 1, "unknown": []}
        # All that is not acknowledged comes again, in order.
        assert await web.payloads(consumer) == ["c", "d"]
        status, answer = await web.call("POST", SUBSCRIPTION, {"type": "Exclusive"})
        assert status == 412
        shared = await web.make(f"{PATH}/subscriptions/other/consumers")
        await web.receive(shared)
        status, answer = await web.call("POST", f"{shared}/acknowledge", {"messageIds": [ids[0]], "cumulative": True})
        assert (status, "not allowed on Shared" in answer["reason"]) == (405, True)
        # A refusal changes nothing: it can be said again, as it is allowed.
        assert await web.acknowledge(shared, ids[0]) == {"acknowledged": 1, "unknown": []}

    run(scenario)


def test_what_was_read_ahead_comes_once_after_messages_were_given_back_where_order_is_kept() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make(type="Failover")
        ids = await web.produce(*(letter * 2000 for letter in "abcd"))
        assert [one[0] for one in await web.payloads(consumer, "maxBytes=100")] == ["a"]
        await web.give_back(consumer, ids[0])
        found: list[str] = []
        while some := await web.payloads(consumer):
            found += [one[0] for one in some]
        assert found == ["a", "b", "c", "d"]

    run(scenario, active_consumer_failover_delay_ms=0)


def test_message_given_back_comes_again_alone_where_order_is_nobodys() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make()
        ids = await web.produce("a", "b", "c")
        await web.receive(consumer)
        assert await web.give_back(consumer, ids[1], "9:9:-1") == {"givenBack": 1, "unknown": ["9:9:-1"]}
        (again,) = await web.receive(consumer)
        assert (again["payload"], again["redeliveryCount"]) == ("b", 1)
        assert (await web.give_back(consumer, all=True))["givenBack"] == 3
        assert sorted(await web.payloads(consumer)) == ["a", "b", "c"]

    run(scenario)


async def publish_batch(web: Web, *payloads: bytes) -> None:
    client = await web.world.client()
    await client.create_producer(producer_name="batcher")
    metadata = pb.MessageMetadata(
        producer_name="batcher", sequence_id=0, publish_time=1, num_messages_in_batch=len(payloads)
    )
    singles = [pb.SingleMessageMetadata(payload_size=len(one)).SerializeToString() for one in payloads]
    body = b"".join(len(head).to_bytes(4, "big") + head + one for head, one in zip(singles, payloads, strict=True))
    send = pb.CommandSend(producer_id=1, sequence_id=0, num_messages=len(payloads))
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
    entry = encode_entry(metadata, body)
    client.send_bytes(encode_frame_head(command, len(entry)) + entry)
    await client.receipt()
    await client.close_producer()


def test_messages_of_a_batch_are_acknowledged_one_by_one() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make()
        await publish_batch(web, b"a", b"b", b"c")
        found = await web.receive(consumer, "max=2")
        assert [one["payload"] for one in found] == ["a", "b"]
        assert [one["messageId"].split(":")[3] for one in found] == ["0", "1"]
        await web.acknowledge(consumer, found[1]["messageId"])
        assert await web.payloads(consumer) == ["c"]
        await web.call("DELETE", consumer)
        again = await web.make()
        found = await web.receive(again)
        assert [one["payload"] for one in found] == ["a", "c"]
        await web.acknowledge(again, *(one["messageId"] for one in found))
        await web.call("DELETE", again)
        assert await web.receive(await web.make()) == []

    run(scenario)


def test_answer_ends_before_a_message_that_is_too_much_but_has_one_in_any_case() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make()
        await web.produce("x" * 2000, "y" * 2000, "z" * 2000)
        assert [one[0] for one in await web.payloads(consumer, "maxBytes=100")] == ["x"]
        assert [one[0] for one in await web.payloads(consumer, "maxBytes=5000")] == ["y", "z"]

    run(scenario)


def test_payload_that_is_no_text_comes_in_base64_and_all_do_where_that_is_asked_for() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make()
        await web.produce("AP8=", encoding="base64")
        await web.produce("text")
        found = await web.receive(consumer)
        assert [(one["payload"], one["encoding"]) for one in found] == [("AP8=", "base64"), ("text", "text")]
        await web.give_back(consumer, all=True)
        assert sorted(await web.payloads(consumer, "encoding=base64")) == ["AP8=", "dGV4dA=="]

    run(scenario)


def test_topic_that_goes_ends_its_consumers_and_a_seek_does() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make()
        await web.produce("a")
        waiting = spawn(web.call("POST", f"{consumer}/receive?waitMs=5000&max=1"), name="waits")
        await next_turn()
        assert (await waiting)[0] == 200
        waiting = spawn(web.call("POST", f"{consumer}/receive?waitMs=5000"), name="waits")
        await wait_ms(10)
        await web.world.broker.registry.unload(TopicName.parse(TOPIC))
        status, answer = await waiting
        assert (status, "its topic moved" in answer["reason"]) == (404, True)
        assert await web.payloads(await web.make()) == ["a"]

    run(scenario)


def test_partitions_are_consumed_together_until_there_are_more_of_them() -> None:
    async def scenario(web: Web) -> None:
        await web.world.broker.administered.partitions.create(TopicName.parse(TOPIC), 3)
        consumer = await web.make()
        ids = await web.produce(*(str(number) for number in range(9)))
        found: list[dict[str, Any]] = []
        while len(found) < 9:
            found += await web.receive(consumer, "max=4")
        assert sorted(one["messageId"] for one in found) == sorted(ids)
        assert (await web.acknowledge(consumer, *ids))["acknowledged"] == 9
        await web.world.broker.administered.partitions.grow(TopicName.parse(TOPIC), 4)
        status, answer = await web.call("POST", f"{consumer}/receive")
        assert (status, "has 4 partitions now" in answer["reason"]) == (404, True)

    run(scenario)


def test_consumers_have_a_limit_over_all_and_one_that_could_not_be_made_leaves_nothing() -> None:
    async def scenario(web: Web) -> None:
        await web.make(type="Exclusive")
        status, answer = await web.call("POST", SUBSCRIPTION, {"type": "Exclusive"})
        assert (status, consumers_of(web)) == (412, 1)
        await web.make(f"{PATH}/subscriptions/other/consumers")
        status, answer = await web.call("POST", f"{PATH}/subscriptions/third/consumers")
        assert (status, "gemingaHttpConsumersMax" in answer["reason"]) == (429, True)

    run(scenario, context={"message_limits": MessageLimits(consumers=2)})


def test_consumer_is_of_who_made_it_on_its_subscription() -> None:
    access = Access(authenticator=TakenAtTheirWord(), authorizer=ANONYMOUS_MAY)

    async def main(world: BrokerWorld) -> None:
        web = Web(world)
        _, answer = await web.call("POST", SUBSCRIPTION, {}, role="alice")
        consumer = answer["consumer"]
        assert (await web.call("POST", f"{SUBSCRIPTION}/{consumer}/receive", role="alice"))[0] == 200
        assert (await web.call("POST", f"{SUBSCRIPTION}/{consumer}/receive", role="bob"))[0] == 404
        other = f"{PATH}/subscriptions/t/consumers"
        assert (await web.call("POST", f"{other}/{consumer}/receive", role="alice"))[0] == 404

    run_with_broker(main, access=access)


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("", {"type": "Round"}, 412, "type is 'Round'; expected one of Exclusive"),
        ("", {"initialPosition": 3}, 412, "initialPosition is 3; expected latest or earliest"),
        ("", {"name": "n" * 513}, 412, "name has at most 512 characters"),
        ("", {"leaseMs": 999}, 412, "leaseMs must be 1000 to 600000"),
        ("/x/receive?max=0", {}, 412, "max must be 1 to 1000, not 0"),
        ("/x/receive?waitMs=60001", {}, 412, "waitMs must be 0 to 60000"),
        ("/x/receive?maxBytes=4194305", {}, 412, "maxBytes must be 1 to"),
        ("/x/receive?encoding=hex", {}, 412, "encoding is 'hex'; expected text or base64"),
        ("/x/receive", {}, 404, "there is no consumer x of subscription s"),
        ("/x/acknowledge", {"messageIds": "1:1:1"}, 400, "messageIds must be a list of message ids"),
        ("/x/acknowledge", {"messageIds": ["1:1"]}, 400, "a message id is '1:1'; expected one such as 3:0:-1"),
        ("/x/negativeAcknowledge", {}, 400, "messageIds must be a list"),
        ("/x/acknowledge", {"messageIds": [""] * 10_001}, 400, "a request has at most 10000"),
    ],
)
def test_input_that_makes_no_sense_is_told_what_was_expected(path: str, body: Any, status: int, told: str) -> None:
    async def scenario(web: Web) -> None:
        found, answer = await web.call("POST", f"{SUBSCRIPTION}{path}", body)
        assert (found, told in answer["reason"]) == (status, True), answer

    run(scenario)


def test_non_persistent_messages_come_while_a_request_waits_and_need_no_acknowledgment() -> None:
    async def scenario(web: Web) -> None:
        path = "/topics/non-persistent/public/default/topic"
        consumer = await web.make(f"{path}/subscriptions/s/consumers")
        await web.produce("lost", path=path)
        waiting = spawn(web.payloads(consumer, "waitMs=1000"), name="waits")
        await wait_ms(1)
        await web.produce("seen", path=path)
        assert await waiting == ["seen"]
        status, answer = await web.call("POST", f"{consumer}/acknowledge", {"messageIds": []})
        assert (status, "keeps nothing" in answer["reason"]) == (405, True)

    run(scenario)


def test_consumer_that_acknowledges_nothing_is_given_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "HELD_MAX", 3)

    async def scenario(web: Web) -> None:
        consumer = await web.make()
        ids = await web.produce("a", "b", "c", "d")
        await web.receive(consumer, "max=3")
        status, answer = await web.call("POST", f"{consumer}/receive")
        assert (status, "3 entries are not acknowledged" in answer["reason"]) == (409, True)
        await web.acknowledge(consumer, ids[0])
        assert await web.payloads(consumer) == ["d"]

    run(scenario)


def test_all_inboxes_together_have_a_limit_and_who_left_much_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "INBOX_BYTES_MAX", 3000)

    async def scenario(web: Web) -> None:
        first = await web.make()
        other = await web.make(f"{PATH}/subscriptions/other/consumers")
        await web.produce(*("x" * 1000 for _ in range(10)))
        # One read of the dispatcher brings all; the answer takes the first.
        assert len(await web.receive(first, "maxBytes=500")) == 1
        found = await web.receive(other, "maxBytes=500")
        assert len(found) == 1
        assert (await web.call("POST", f"{first}/receive"))[0] == 404
        assert consumers_of(web) == 0

    run(scenario)


def test_what_is_left_of_a_batch_that_was_opened_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "INBOX_BYTES_MAX", 30_000)

    async def scenario(web: Web) -> None:
        made = {name: await web.make(f"{PATH}/subscriptions/{name}/consumers") for name in ("one", "two", "three")}
        # A few bytes, of which 100 messages become.
        await publish_batch(web, *(b"" for _ in range(100)))
        room = room_of(web)
        for number, name in enumerate(("one", "two"), 1):
            assert len(await web.receive(made[name], "max=1")) == 1
            assert 19_000 < room.used_bytes / number < 21_000
        assert room.used_bytes > 30_000
        assert len(await web.receive(made["three"], "max=1")) == 1
        assert (await web.call("POST", f"{made['one']}/receive"))[0] == 404
        assert len(await web.receive(made["two"], "max=59")) == 59
        assert (await web.call("POST", f"{made['three']}/receive"))[0] == 404
        assert 7_500 < room.used_bytes < 8_500
        # All of it comes again, and nothing is counted for what is gone.
        await web.call("POST", f"{made['two']}/negativeAcknowledge", {"all": True})
        assert room.used_bytes == 0
        assert len(await web.receive(made["two"], "max=10")) == 10
        assert room.used_bytes > 0
        assert (await web.call("DELETE", made["two"]))[0] == 204
        assert room.used_bytes == 0

    run(scenario)


def test_terminated_topic_says_so_once_all_of_it_was_received() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make(type="Exclusive")
        ids = await web.produce("a")
        await web.world.broker.registry.terminate(TopicName.parse(TOPIC))
        assert await web.payloads(consumer) == ["a"]
        await web.acknowledge(consumer, *ids)
        status, answer = await web.call("POST", f"{consumer}/receive?waitMs=1000")
        assert (status, answer.get("endOfTopic")) == (200, True)

    run(scenario)


def test_client_that_hangs_up_while_it_waits_takes_no_message_with_it() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make()
        hung_up = asyncio.Event()
        bodies = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if bodies:
                return bodies.pop()
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            del message

        scope = {**http_scope("POST", f"{consumer}/receive?waitMs=60000", []), "client": ("10.0.0.7", 1)}
        waiting = spawn(web.application(scope, receive, send), name="waits")
        await wait_ms(10)
        hung_up.set()
        await waiting
        assert web.world.runtime.clock.monotonic() < 30
        await web.produce("a")
        assert await web.payloads(consumer) == ["a"]
        assert (await web.receive(await web.make())) == []

    run(scenario)


def test_nobody_watches_for_a_client_whose_request_is_answered() -> None:
    async def scenario(web: Web) -> None:
        consumer = await web.make()
        await web.produce("a")
        bodies = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            return bodies.pop() if bodies else await asyncio.Future()

        async def send(message: Any) -> None:
            del message

        scope = {**http_scope("POST", f"{consumer}/receive", []), "client": ("10.0.0.7", 1)}
        await web.application(scope, receive, send)
        await next_turn()
        assert [task for task in asyncio.all_tasks() if task.get_name() == "who receives over HTTP"] == []

    run(scenario)

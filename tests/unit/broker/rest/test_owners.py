"""Requests that act on a topic of another broker are sent to it, once, as they came."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import ASGIApp, Message

from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.ports import Elsewhere
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.ownership import OwnershipTable, endpoints_of
from support.worlds.rest_world import http_scope, rest_application

TOPIC_PATH = "/admin/v2/persistent/public/default/topic"
Ask = Callable[..., Awaitable[tuple[int, str, object]]]


def asker(application: ASGIApp) -> Ask:
    async def ask(method: str, target: str, body: bytes = b"", scheme: str = "http") -> tuple[int, str, object]:
        """Status, ``Location`` and JSON of the answer."""
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        scope = {**http_scope(method, target, headers), "scheme": scheme, "server": ("a", 8080)}
        await application(scope, receive, send)
        told = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], told.get("location", ""), json.loads(text) if text else None

    return ask


def run(scenario: Callable[[BrokerWorld, Ask, OwnershipTable], Awaitable[None]]) -> None:
    table = OwnershipTable(["a", "b"])

    async def main(world: BrokerWorld) -> None:
        await scenario(world, asker(rest_application(world.broker)), table)

    run_with_broker(main, ownership=table.brokers["a"])


def test_request_for_a_topic_elsewhere_is_sent_there_with_its_path_and_query() -> None:
    async def scenario(world: BrokerWorld, ask: Ask, table: OwnershipTable) -> None:
        table.default = "b"
        there = f"http://b:8080{TOPIC_PATH}"
        for method, path in [
            ("PUT", ""),
            ("DELETE", ""),
            ("GET", "/stats"),
            ("GET", "/subscriptions"),
            ("PUT", "/subscription/a%2Fb%20c"),
            ("GET", "/lastMessageId"),
            ("PUT", "/unload"),
            ("POST", "/terminate"),
            ("GET", "/retention"),
            ("POST", "/retention"),
        ]:
            assert await ask(method, TOPIC_PATH + path, b"{}") == (307, f"{there}{path}?authoritative=true", None), path
        status, location, _ = await ask("GET", f"{TOPIC_PATH}/stats?a=%26b&authoritative=false&c&&d=1=2")
        assert (status, location) == (307, f"{there}/stats?a=%26b&c&d=1=2&authoritative=true")
        status, location, _ = await ask("GET", f"{TOPIC_PATH}/stats", scheme="https")
        assert (status, location) == (307, f"https://b:8443{TOPIC_PATH}/stats?authoritative=true")
        assert not world.broker.topics

    run(scenario)


@pytest.mark.parametrize("query", ["?authoritative=true", "?x=1&authoritative=TRUE"])
def test_request_that_a_broker_sent_is_not_sent_on(query: str) -> None:
    async def scenario(world: BrokerWorld, ask: Ask, table: OwnershipTable) -> None:
        table.default = "b"
        status, location, answer = await ask("GET", f"{TOPIC_PATH}/stats{query}")
        assert (status, location) == (503, "")
        assert "do not agree" in answer["reason"]
        table.default = None
        status, location, answer = await ask("GET", f"{TOPIC_PATH}/stats")
        assert (status, location) == (503, "")
        assert "No broker was available" in answer["reason"]

    run(scenario)


def test_request_for_a_topic_here_and_what_acts_on_no_topic_is_answered() -> None:
    async def scenario(world: BrokerWorld, ask: Ask, table: OwnershipTable) -> None:
        assert (await ask("PUT", TOPIC_PATH))[0] == 204
        assert (await ask("GET", f"{TOPIC_PATH}/stats?authoritative=true"))[0] == 200
        await table.give([TopicName.parse(TOPIC)], "b")
        assert (await ask("GET", f"{TOPIC_PATH}/stats"))[0] == 307
        # Policies are where the namespace keeps them, lists, partitions and schemas in metadata, which all read.
        assert (await ask("GET", f"{TOPIC_PATH}/retention"))[0] != 307
        assert (await ask("GET", "/admin/v2/persistent/public/default"))[2] == [TOPIC]
        assert (await ask("GET", f"{TOPIC_PATH}/partitions"))[0] == 200
        assert (await ask("GET", "/admin/v2/schemas/public/default/topic/schema"))[0] == 404

    run(scenario)


def test_lookup_names_the_owner_and_sends_to_who_is_to_become_it() -> None:
    async def scenario(world: BrokerWorld, ask: Ask, table: OwnershipTable) -> None:
        path = "/lookup/v2/topic/persistent/public/default/topic"
        table.default = "b"
        status, _, answer = await ask("GET", path)
        assert (status, answer["brokerUrl"], answer["httpUrl"]) == (200, "pulsar://b:6650", "http://b:8080")
        status, _, answer = await ask("GET", f"{path}?listenerName=external")
        assert (status, answer["brokerUrl"]) == (200, "pulsar://b.example.org:7000")
        table.is_asking = True
        status, location, _ = await ask("GET", f"{path}?listenerName=internal&authoritative=false")
        assert (status, location) == (307, f"http://b:8080{path}?listenerName=internal&authoritative=true")
        assert (await ask("GET", f"{path}?authoritative=true"))[0] == 503

    run(scenario)


def test_owner_without_a_web_service_is_named_and_not_redirected_to() -> None:
    async def scenario(world: BrokerWorld, ask: Ask, table: OwnershipTable) -> None:
        table.brokers["a"].beliefs[TOPIC] = Elsewhere(Endpoints([Endpoint("internal", "pulsar://c:6650")]))
        status, location, answer = await ask("GET", f"{TOPIC_PATH}/stats")
        assert (status, location) == (503, "")
        assert "without a web service" in answer["reason"]
        table.brokers["a"].beliefs[TOPIC] = Elsewhere(Endpoints(endpoints_of("c")))
        assert (await ask("GET", f"{TOPIC_PATH}/stats"))[0] == 307

    run(scenario)

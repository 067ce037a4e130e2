"""GET_TOPICS_OF_NAMESPACE and topic list watches."""

from __future__ import annotations

import time

import pytest

from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import topics_hash
from support.house.cpu_time import cpu_seconds_at_most
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker

PREFIX = "persistent://public/default/"


async def create(world: BrokerWorld, *names: str) -> None:
    for name in names:
        await world.broker.registry.get(TopicName.parse(name), create=True)


async def topics(client: Client, **fields) -> pb.CommandGetTopicsOfNamespaceResponse:
    request = pb.CommandGetTopicsOfNamespace(request_id=client.next_request_id(), namespace="public/default", **fields)
    client.send(pb.BaseCommand(type=Type.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request))
    return (await client.expect(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE)).getTopicsOfNamespaceResponse


async def watch(client: Client, pattern: str, watcher_id: int = 1) -> None:
    request = pb.CommandWatchTopicList(
        request_id=client.next_request_id(),
        watcher_id=watcher_id,
        namespace="public/default",
        topics_pattern=pattern,
    )
    client.send(pb.BaseCommand(type=Type.WATCH_TOPIC_LIST, watchTopicList=request))


def test_topics_are_listed_by_mode_and_pattern() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await create(world, "a-1", "a-2", "b-1", "non-persistent://public/default/a-3")
        client = await world.client()
        assert list((await topics(client)).topics) == [PREFIX + name for name in ("a-1", "a-2", "b-1")]
        answer = await topics(client, mode=pb.CommandGetTopicsOfNamespace.ALL)
        assert len(answer.topics) == 4
        assert not answer.filtered
        answer = await topics(client, topics_pattern="persistent://public/default/a-.*")
        assert list(answer.topics) == [PREFIX + "a-1", PREFIX + "a-2"]
        assert answer.filtered
        # Not a pattern, or too long a one: the client filters by itself.
        for pattern in ("(", "x" * 51):
            answer = await topics(client, topics_pattern=pattern)
            assert (len(answer.topics), answer.filtered) == (3, False)

    run_with_broker(scenario)


def test_unchanged_list_is_not_sent_again() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await create(world, "a")
        client = await world.client()
        first = await topics(client)
        assert first.changed
        assert first.topics_hash == topics_hash(first.topics)
        second = await topics(client, topics_hash=first.topics_hash)
        assert not second.changed
        assert not second.topics

    run_with_broker(scenario)


def test_watch_tells_of_topics_that_come_and_go() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await create(world, "a-1", "b-1")
        client = await world.client()
        await watch(client, "public/default/a-.*")
        success = (await client.expect(Type.WATCH_TOPIC_LIST_SUCCESS)).watchTopicListSuccess
        assert list(success.topic) == [PREFIX + "a-1"]
        await create(world, "a-2", "b-2")
        update = (await client.expect(Type.WATCH_TOPIC_UPDATE)).watchTopicUpdate
        assert (list(update.new_topics), list(update.deleted_topics)) == ([PREFIX + "a-2"], [])
        await world.broker.registry.delete(TopicName.parse("a-1"))
        update = (await client.expect(Type.WATCH_TOPIC_UPDATE)).watchTopicUpdate
        assert (list(update.new_topics), list(update.deleted_topics)) == ([], [PREFIX + "a-1"])
        assert update.topics_hash == topics_hash([PREFIX + "a-2"])
        close = pb.CommandWatchTopicListClose(request_id=9, watcher_id=1)
        client.send(pb.BaseCommand(type=Type.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=close))
        await client.expect(Type.SUCCESS)
        await create(world, "a-3")
        assert not client.received

    run_with_broker(scenario)


def test_watches_end_with_their_connection() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        await watch(client, "public/default/.*")
        await client.expect(Type.WATCH_TOPIC_LIST_SUCCESS)
        client.connection.connection_lost(None)
        assert client.connection.members.watchers == {}
        await create(world, "a")

    run_with_broker(scenario)


def test_bad_patterns_are_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for pattern in ("(", "x" * 51):
            await watch(client, pattern)
            assert (await client.error()).error == pb.NotAllowedError

    run_with_broker(scenario)


#: 49 characters that take a matcher that backtracks minutes, for a name of two dozen letters.
EVIL = ".+.+.+" + "a?" * 21 + "b"


@pytest.mark.parametrize("is_watch", [False, True])
def test_pattern_that_backtracks_does_not_hold_up_another_clients_receipt(is_watch: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await create(world, "a" * 24)
        hostile, other = await world.client(), await world.client()
        await other.create_producer()
        for watcher_id in range(3):
            if is_watch:
                await watch(hostile, EVIL, watcher_id)
            else:
                request = pb.CommandGetTopicsOfNamespace(
                    request_id=watcher_id, namespace="public/default", topics_pattern=EVIL
                )
                hostile.send(pb.BaseCommand(type=Type.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request))
        await other.publish(0)
        for _ in range(3):
            if is_watch:
                success = (await hostile.expect(Type.WATCH_TOPIC_LIST_SUCCESS)).watchTopicListSuccess
                assert list(success.topic) == []
            else:
                answer = (await hostile.expect(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE)).getTopicsOfNamespaceResponse
                assert (list(answer.topics), answer.filtered) == ([], True)

    with cpu_seconds_at_most(10):
        began_s = time.process_time()
        run_with_broker(scenario)
        assert time.process_time() - began_s < 1

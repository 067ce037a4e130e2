"""Watches of topic lists: many of them, many topics, and what the broker does not do for a client."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.registry import topic_watches
from geminga.model.errors import MetadataError
from geminga.model.topic_name import TopicName
from geminga.runtime import SystemRng
from geminga.runtime.turns import TURN_STEPS_MAX
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import topics_hash
from support.house.turn_probe import other_turns
from support.house.weekly_sample import sampled
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker

PREFIX = "persistent://public/default/"
LEDGERS = "/managed-ledgers/public/default/persistent/"


def ask(client: Client, **fields) -> int:
    request_id = client.next_request_id()
    request = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace="public/default", **fields)
    client.send(pb.BaseCommand(type=Type.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request))
    return request_id


def watch(client: Client, pattern: str, watcher_id: int = 1, namespace: str = "public/default") -> None:
    request = pb.CommandWatchTopicList(
        request_id=client.next_request_id(), watcher_id=watcher_id, namespace=namespace, topics_pattern=pattern
    )
    client.send(pb.BaseCommand(type=Type.WATCH_TOPIC_LIST, watchTopicList=request))


def end_watch(client: Client, watcher_id: int) -> None:
    close = pb.CommandWatchTopicListClose(request_id=client.next_request_id(), watcher_id=watcher_id)
    client.send(pb.BaseCommand(type=Type.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=close))


async def begun(client: Client) -> pb.CommandWatchTopicListSuccess:
    return (await client.expect(Type.WATCH_TOPIC_LIST_SUCCESS)).watchTopicListSuccess


async def create(world: BrokerWorld, *names: str) -> None:
    for name in names:
        await world.metadata.put(LEDGERS + name, b"", expected_version=-1)


async def pass_ms(milliseconds: float) -> None:
    try:
        async with asyncio.timeout(milliseconds / 1000):
            await asyncio.Event().wait()
    except TimeoutError:
        pass


def test_pattern_that_is_left_to_the_client_is_not_evaluated() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await create(world, "a", "__b")
        client = await world.client()
        ask(client, topics_pattern="public/default/(?!__).*")
        answer = (await client.expect(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE)).getTopicsOfNamespaceResponse
        assert (len(answer.topics), answer.filtered) == (2, False)
        watch(client, "public/default/(?!__).*")
        await client.check_error(pb.NotAllowedError, "none that the broker evaluates")

    run_with_broker(scenario)


def test_one_look_serves_all_watchers_and_lets_others_in_between() -> None:
    topics, watchers = 20_000, 200
    looks = 0

    async def scenario(world: BrokerWorld) -> None:
        nonlocal looks
        await create(world, *(f"t-{index}" for index in range(topics)))
        clients = [await world.client() for _ in range(2)]
        for watcher_id in range(watchers):
            watch(clients[watcher_id % 2], f"public/default/(t|u{watcher_id % 5})-7777.?", watcher_id)
        for watcher_id in range(watchers):
            assert len((await begun(clients[watcher_id % 2])).topic) == 1
        list_topics = world.broker.topic_watches.list_topics

        async def counted(namespace: str):
            nonlocal looks
            looks += 1
            return await list_topics(namespace)

        world.broker.topic_watches.list_topics = counted
        await pass_ms(topic_watches.LOOK_PAUSE_MS)
        with other_turns() as turns:
            await create(world, "t-77777", "v-1", "v-2", "v-3")
            for watcher_id in range(watchers):
                update = (await clients[watcher_id % 2].expect(Type.WATCH_TOPIC_UPDATE)).watchTopicUpdate
                assert (list(update.new_topics), list(update.deleted_topics)) == ([PREFIX + "t-77777"], [])
        assert turns.count > 2 * topics / TURN_STEPS_MAX
        await pass_ms(1000)
        assert looks <= 2  # and not one for each watcher and topic
        for client in clients:
            client.connection.connection_lost(None)
        assert (world.broker.topic_watches.count, world.broker.topic_watches.names_count) == (0, 0)
        await create(world, "t-77778")
        await pass_ms(1000)
        assert looks <= 2

    run_with_broker(scenario)


def test_many_changes_are_looked_at_with_pauses() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        watch(client, "public/default/.*")
        await begun(client)
        began_s = world.runtime.clock.monotonic()
        updates = 0
        for index in range(200):
            await create(world, f"t-{index}")
            await pass_ms(5)
        await pass_ms(500)
        known: set[str] = set()
        for command, _ in client.received:
            updates += 1
            known |= set(command.watchTopicUpdate.new_topics)
            assert command.watchTopicUpdate.topics_hash == topics_hash(sorted(known))
        assert known == {f"{PREFIX}t-{index}" for index in range(200)}
        passed_ms = (world.runtime.clock.monotonic() - began_s) * 1000
        assert updates <= passed_ms / topic_watches.LOOK_PAUSE_MS + 1

    run_with_broker(scenario)


def test_watches_of_a_broker_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watches, "WATCHERS_MAX", 3)
    monkeypatch.setattr(topic_watches, "WATCHED_NAMES_MAX", 4)

    async def scenario(world: BrokerWorld) -> None:
        await create(world, "a", "b")
        client = await world.client()
        for watcher_id, pattern in enumerate((".*", ".+")):
            watch(client, pattern, watcher_id)
            assert len((await begun(client)).topic) == 2
        watch(client, ".*default/.", 2)
        error = await client.error()
        assert (error.error, "names of topics" in error.message) == (pb.NotAllowedError, True)
        watch(client, ".*", 3)  # the same list as the first has
        assert len((await begun(client)).topic) == 2
        watch(client, ".*", 4)
        error = await client.error()
        assert (error.error, "topic list watches" in error.message) == (pb.NotAllowedError, True)
        assert sorted(client.connection.members.watchers) == [0, 1, 3]
        end_watch(client, 1)
        await client.expect(Type.SUCCESS)
        watch(client, ".*default/.", 2)
        assert len((await begun(client)).topic) == 2

    run_with_broker(scenario)


def test_watches_of_a_connection_are_limited() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for watcher_id in range(topic_watches.WATCHERS_PER_CONNECTION_MAX):
            watch(client, ".*", watcher_id)
        watch(client, ".*", 7)  # replaces one
        watch(client, ".*", 5000)
        assert (await client.error()).error == pb.NotAllowedError
        assert world.broker.topic_watches.count == topic_watches.WATCHERS_PER_CONNECTION_MAX

    run_with_broker(scenario)


def test_watch_whose_look_fails_is_refused_and_those_that_stand_are_told_later() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        watch(client, ".*", 1)
        await begun(client)
        list_topics, fails = world.broker.topic_watches.list_topics, True

        async def failing(namespace: str):
            if fails:
                raise MetadataError("not now")
            return await list_topics(namespace)

        world.broker.topic_watches.list_topics = failing
        await create(world, "a")
        watch(client, ".*", 2)
        assert "Metadata can not be read" in (await client.error()).message
        assert sorted(client.connection.members.watchers) == [1]
        fails = False
        update = (await client.expect(Type.WATCH_TOPIC_UPDATE)).watchTopicUpdate
        assert list(update.new_topics) == [PREFIX + "a"]

    run_with_broker(scenario)


@pytest.mark.parametrize("seed", sampled("topic watches", range(8), 3))
def test_watchers_know_what_matches_whatever_comes_and_goes(seed: int) -> None:
    patterns = {"public/default/.*": "", "public/default/a.*": "a", "public/default/b\\d+": "b", "x": "x"}

    async def scenario(world: BrokerWorld) -> None:
        rng = SystemRng(seed)
        topics: set[str] = set()
        client = await world.client()
        watched: dict[int, str] = {}
        told: dict[int, set[str]] = {}

        def take() -> None:
            while client.received:
                command, _ = client.received.popleft()
                if command.type == Type.WATCH_TOPIC_LIST_SUCCESS:
                    success = command.watchTopicListSuccess
                    told[success.watcher_id] = set(success.topic)
                elif command.type == Type.WATCH_TOPIC_UPDATE:
                    update = command.watchTopicUpdate
                    if update.watcher_id in watched and update.watcher_id in told:
                        names = told[update.watcher_id]
                        assert not names & set(update.new_topics)
                        names |= set(update.new_topics)
                        names -= set(update.deleted_topics)
                        assert update.topics_hash == topics_hash(sorted(names))

        for _ in range(150):
            action = rng.random()
            name = f"{'ab'[rng.below(2)]}{rng.below(12)}"
            watcher_id = rng.below(6)
            if action < 0.35 and name not in topics:
                topics.add(name)
                await create(world, name)
            elif action < 0.6 and name in topics:
                topics.remove(name)
                await world.metadata.delete(LEDGERS + name)
            elif action < 0.8:
                await pass_ms((1, 30, 150)[rng.below(3)])
            elif watcher_id not in watched:
                watched[watcher_id] = list(patterns)[rng.below(len(patterns))]
                watch(client, watched[watcher_id], watcher_id)
            else:
                take()
                del watched[watcher_id]
                told.pop(watcher_id, None)
                end_watch(client, watcher_id)
                await pass_ms(0.01)
            take()
        await pass_ms(2000)
        take()
        assert sorted(told) == sorted(watched)
        for watcher_id, pattern in watched.items():
            expected = {PREFIX + name for name in topics if name.startswith(patterns[pattern])}
            assert told[watcher_id] == expected
        names_count = world.broker.topic_watches.names_count
        assert names_count == sum(
            sum(name.startswith(patterns[pattern]) for name in topics) for pattern in set(watched.values())
        )

    run_with_broker(scenario)


def test_lists_are_answered_one_after_the_other_as_fast_as_the_client_takes_them() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.registry.get(TopicName.parse("a"), create=True)
        client = await world.client()
        client.connection.pause_writing()
        for _ in range(50):
            ask(client)
        await pass_ms(100)
        assert not client.received
        client.connection.resume_writing()
        for request_id in range(1, 51):
            answer = (await client.expect(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE)).getTopicsOfNamespaceResponse
            assert answer.request_id == request_id
        client.connection.pause_writing()
        for _ in range(1001):
            ask(client)
        assert (await client.error()).error == pb.TooManyRequests
        client.lose()

    run_with_broker(scenario)


def test_list_that_fits_no_frame_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await create(world, *(f"topic-{index}" for index in range(100)))
        client = await world.client()
        ask(client)
        assert "too many for one frame" in (await client.error()).message
        ask(client, topics_pattern="public/default/topic-7.?")
        answer = (await client.expect(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE)).getTopicsOfNamespaceResponse
        assert len(answer.topics) == 11

    run_with_broker(scenario, message_bytes_max=2000)


def test_watch_whose_list_fits_no_frame_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await create(world, *(f"topic-{index}" for index in range(100)))
        client = await world.client()
        watch(client, ".*", 1)
        error = await client.error()
        assert (error.error, "too many for one frame" in error.message) == (pb.NotAllowedError, True)
        assert client.connection.members.watchers == {}
        watch(client, "public/default/topic-7.?", 2)
        assert len((await begun(client)).topic) == 11
        assert (world.broker.topic_watches.count, world.broker.topic_watches.names_count) == (1, 11)

    run_with_broker(scenario, message_bytes_max=2000)


def test_changes_that_fit_no_frame_are_told_in_several() -> None:
    async def told(client: Client) -> list[pb.CommandWatchTopicUpdate]:
        updates = []
        while not updates or not updates[-1].topics_hash:
            command = await client.expect(Type.WATCH_TOPIC_UPDATE)
            assert command.ByteSize() <= 2000
            updates.append(command.watchTopicUpdate)
        return updates

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        watch(client, ".*", 1)
        await begun(client)
        names = [f"topic-{index:03}" for index in range(150)]
        await create(world, *names)
        updates = await told(client)
        assert len(updates) >= 3
        assert [name for update in updates for name in update.new_topics] == [PREFIX + name for name in names]
        assert updates[-1].topics_hash == topics_hash([PREFIX + name for name in names])
        for name in names:
            await world.metadata.delete(LEDGERS + name)
        await create(world, "z")
        updates = await told(client)
        assert [name for update in updates for name in update.deleted_topics] == [PREFIX + name for name in names]
        assert [name for update in updates for name in update.new_topics] == [PREFIX + "z"]
        assert updates[-1].topics_hash == topics_hash([PREFIX + "z"])

    run_with_broker(scenario, message_bytes_max=2000)

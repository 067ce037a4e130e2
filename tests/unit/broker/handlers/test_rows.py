"""Every command has a row with a decision, is refused where its action is denied, and has changed nothing then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from geminga.broker.access.core.actions import (
    EVERYTHING,
    Action,
    Anyone,
    NamespaceOperation,
    Resource,
    SuperUser,
    TenantAdministration,
    TopicOperation,
    of_namespace,
    of_topic,
)
from geminga.broker.access.core.principal import ANONYMOUS
from geminga.broker.handlers import ROWS
from geminga.broker.handlers.rows import Asks, CommandRow, Handshake, SettledBy, by_command
from geminga.model.errors import InvariantError
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.deciding import Denying
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker

OTHER = "persistent://public/default/other"
AUTHORIZATION_ERROR = pb.AuthorizationError


@dataclass(frozen=True)
class Asked:
    """A command that asks, and what of."""

    action: Action
    resource: Resource
    send: Callable[[Client], object]


def _send(client: Client, **command: object) -> None:
    (name,) = command
    kind = pb.BaseCommand.DESCRIPTOR.fields_by_name[name].number
    client.send(pb.BaseCommand(type=kind, **command))


HERE = of_topic(TopicName.parse(TOPIC))
THERE = of_topic(TopicName.parse(OTHER))
SUB = of_topic(TopicName.parse(TOPIC), "sub")
INITIAL = {"topic": OTHER, "producer_id": 5, "request_id": 70, "initial_subscription_name": "first"}

#: One command for each question of each row.
ASKED = {
    "LOOKUP": Asked(
        TopicOperation.LOOKUP, THERE, lambda c: _send(c, lookupTopic=pb.CommandLookupTopic(topic=OTHER, request_id=60))
    ),
    "PARTITIONED_METADATA": Asked(
        TopicOperation.LOOKUP,
        THERE,
        lambda c: _send(c, partitionMetadata=pb.CommandPartitionedTopicMetadata(topic=OTHER, request_id=61)),
    ),
    "PRODUCER": Asked(
        TopicOperation.PRODUCE,
        THERE,
        lambda c: _send(c, producer=pb.CommandProducer(topic=OTHER, producer_id=5, request_id=62)),
    ),
    "PRODUCER with a subscription": Asked(
        TopicOperation.SUBSCRIBE,
        of_topic(TopicName.parse(OTHER), "first"),
        lambda c: _send(c, producer=pb.CommandProducer(**INITIAL)),
    ),
    "PRODUCER as a replicator": Asked(
        TenantAdministration.REPLICATE,
        THERE,
        lambda c: _send(
            c, producer=pb.CommandProducer(topic=OTHER, producer_id=5, request_id=62, producer_name="pulsar.repl.east")
        ),
    ),
    "SUBSCRIBE": Asked(
        TopicOperation.CONSUME,
        of_topic(TopicName.parse(OTHER), "sub"),
        lambda c: _send(
            c,
            subscribe=pb.CommandSubscribe(
                topic=OTHER, subscription="sub", subType=pb.CommandSubscribe.Shared, consumer_id=5, request_id=63
            ),
        ),
    ),
    "SEEK": Asked(
        TopicOperation.RESET_CURSOR,
        SUB,
        lambda c: _send(c, seek=pb.CommandSeek(consumer_id=1, request_id=64, message_publish_time=1)),
    ),
    "UNSUBSCRIBE": Asked(
        TopicOperation.UNSUBSCRIBE,
        SUB,
        lambda c: _send(c, unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=65)),
    ),
    "GET_SCHEMA": Asked(
        TopicOperation.GET_METADATA, HERE, lambda c: _send(c, getSchema=pb.CommandGetSchema(topic=TOPIC, request_id=66))
    ),
    "GET_OR_CREATE_SCHEMA": Asked(
        TopicOperation.PRODUCE,
        HERE,
        lambda c: _send(
            c,
            getOrCreateSchema=pb.CommandGetOrCreateSchema(
                topic=TOPIC, request_id=67, schema=pb.Schema(name="", schema_data=b"", type=pb.Schema.String)
            ),
        ),
    ),
    # Where replicators may bring schemas and others may not, its name is believed.
    "GET_OR_CREATE_SCHEMA as a replicator": Asked(
        TenantAdministration.REPLICATE,
        HERE,
        lambda c: _send(
            c,
            getOrCreateSchema=pb.CommandGetOrCreateSchema(
                topic=TOPIC,
                request_id=67,
                schema=pb.Schema(name="", schema_data=b"", type=pb.Schema.String),
                producerName="pulsar.repl.east",
            ),
        ),
    ),
    "GET_TOPICS_OF_NAMESPACE": Asked(
        NamespaceOperation.GET_TOPICS,
        of_namespace("public/default"),
        lambda c: _send(
            c, getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(namespace="public/default", request_id=68)
        ),
    ),
    "WATCH_TOPIC_LIST": Asked(
        NamespaceOperation.GET_TOPICS,
        of_namespace("public/default"),
        lambda c: _send(
            c,
            watchTopicList=pb.CommandWatchTopicList(
                namespace="public/default",
                request_id=69,
                watcher_id=1,
                topics_pattern="persistent://public/default/x.*",
            ),
        ),
    ),
    "END_TXN_ON_PARTITION": Asked(
        SuperUser.END_TRANSACTION,
        EVERYTHING,
        lambda c: _send(c, endTxnOnPartition=pb.CommandEndTxnOnPartition(request_id=70, topic=TOPIC)),
    ),
    "END_TXN_ON_SUBSCRIPTION": Asked(
        SuperUser.END_TRANSACTION,
        EVERYTHING,
        lambda c: _send(
            c,
            endTxnOnSubscription=pb.CommandEndTxnOnSubscription(
                request_id=71, subscription=pb.Subscription(topic=TOPIC, subscription="sub")
            ),
        ),
    ),
}
#: What else a connection may do when nothing is allowed any more: it was decided before.
ANSWERS = (
    "error",
    "lookupTopicResponse",
    "partitionMetadataResponse",
    "getSchemaResponse",
    "getOrCreateSchemaResponse",
    "endTxnOnPartitionResponse",
    "endTxnOnSubscriptionResponse",
)


def refusal_of(command: pb.BaseCommand) -> tuple[int, str] | None:
    """Code and text of an answer that is an error of any form."""
    name = next((name for name in ANSWERS if command.HasField(name)), None)
    if name is None:
        return None
    answer = getattr(command, name)
    if name.startswith("get"):
        return (answer.error_code, answer.error_message) if answer.HasField("error_code") else None
    return (answer.error, answer.message) if answer.HasField("error") else None


async def answer(client: Client) -> pb.BaseCommand:
    while True:
        await client.wait_for_news()
        command = client.received.popleft()[0]
        if command.type not in (Type.ACTIVE_CONSUMER_CHANGE, Type.MESSAGE):
            return command


def state(world: BrokerWorld, client: Client) -> dict[str, object]:
    connection = client.connection
    return {
        "metadata": world.metadata_nodes(),
        "topics": {
            name: sorted((each.name, each.cursor.mark_delete_position) for each in topic.subscriptions.values())
            for name, topic in world.broker.topics.items()
        },
        "producers": list(connection.members.producers),
        "consumers": list(connection.members.consumers),
        "requests": dict(connection.members.requests),
        "watchers": list(connection.members.watchers),
    }


async def settled(world: BrokerWorld) -> Client:
    """A client with a producer, a message and a consumer of it."""
    client = await world.publisher()
    await client.publish(0)
    await client.subscribe()
    await client.expect(Type.MESSAGE)
    return client


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_denied_command_is_refused_and_has_changed_nothing(name: str, is_slow: bool) -> None:
    asked = ASKED[name]
    authorizer = Denying(is_slow=is_slow)

    async def scenario(world: BrokerWorld) -> None:
        client = await settled(world)
        authorizer.denied = (asked.action,)
        authorizer.asked.clear()
        before = state(world, client)
        asked.send(client)
        code, text = refusal_of(await answer(client)) or (None, "")
        assert code == AUTHORIZATION_ERROR
        assert text == f"Client is not authorized to {asked.action}"
        assert state(world, client) == before
        assert authorizer.asked[-1] == (ANONYMOUS, asked.action, asked.resource)
        # The connection goes on with what was settled before.
        await client.publish(1)
        assert (await client.expect(Type.MESSAGE)).message.consumer_id == 1

    run_with_broker(scenario, access=authorizer.access)


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("denied", sorted({asked.action for asked in ASKED.values()}, key=str))
def test_only_what_is_denied_is_refused(denied: Action, is_slow: bool) -> None:
    authorizer = Denying(is_slow=is_slow)

    async def scenario(world: BrokerWorld) -> None:
        await (await world.client()).create_producer(OTHER)
        for name, asked in ASKED.items():
            client = await settled(world)
            authorizer.denied = (denied,)
            authorizer.asked.clear()
            asked.send(client)
            refused = refusal_of(await answer(client))
            was_asked = {action for _, action, _ in authorizer.asked}
            assert was_asked & {asked.action, denied}, name
            assert (refused is not None and refused[0] == AUTHORIZATION_ERROR) == (denied in was_asked), (name, refused)
            authorizer.denied = ()
            client.lose()
            while client.connection in world.broker.connections.open:
                await wait_ms(10)

    run_with_broker(scenario, access=authorizer.access)


def test_every_row_that_asks_is_among_those_tried() -> None:
    asking = {row.name for row in ROWS if isinstance(row.needs, Asks)}
    assert asking == {name.partition(" ")[0] for name in ASKED}
    tried = {(name.partition(" ")[0], asked.action) for name, asked in ASKED.items()}
    for row in ROWS:
        if isinstance(row.needs, Asks):
            for action in (row.needs.action, *(action for action, _ in row.needs.also)):
                assert (row.name, action) in tried


def test_commands_behind_one_that_waits_for_its_decision_keep_their_order() -> None:
    """PRODUCER, its SENDs and CLOSE_PRODUCER in one read: as if the decision had been there at once."""
    authorizer = Denying(is_slow=True)

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.request_producer()
        close = pb.CommandCloseProducer(producer_id=1, request_id=9)
        client.send(pb.BaseCommand(type=Type.CLOSE_PRODUCER, close_producer=close))
        first = await answer(client)
        assert first.error.message == "Closed producer before creation was complete"
        assert (await answer(client)).success.request_id == 9
        assert not client.connection.members.producers
        assert not client.is_closed
        # And one that is lost while it waits leaves nothing behind.
        lost = await world.client()
        lost.request_producer(OTHER)
        lost.lose()
        for _ in range(10):
            await wait_ms(10)
        assert list(world.broker.connections.open) in ([], [client.connection])
        assert OTHER not in world.broker.topics or not world.broker.topics[OTHER].producers

    run_with_broker(scenario, access=authorizer.access)


def test_reason_of_the_one_who_decides_is_told() -> None:
    authorizer = Denying((TopicOperation.PRODUCE,), reason="closed for the season")

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.request_producer()
        assert (await client.error()).message == "closed for the season"

    run_with_broker(scenario, access=authorizer.access)


def test_name_that_can_be_none_is_refused_before_anybody_is_asked() -> None:
    authorizer = Denying()

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.request_producer("persistent://only-a-tenant")
        assert (await client.error()).error == pb.InvalidTopicName
        assert not authorizer.asked

    run_with_broker(scenario, access=authorizer.access)


def handle(connection: object, command: pb.BaseCommand) -> None:
    """Does nothing."""


def test_second_row_of_a_command_is_refused() -> None:
    row = CommandRow(Type.PING, handle, Anyone("test"))
    with pytest.raises(InvariantError, match="two rows for the command PING"):
        by_command([row, CommandRow(Type.PING, handle, Handshake())])


def test_row_settled_by_what_asks_nothing_is_refused() -> None:
    rows = [CommandRow(Type.PING, handle, Anyone("test")), CommandRow(Type.ACK, handle, SettledBy(Type.PING))]
    with pytest.raises(InvariantError, match="ACK is settled by PING, which asks nothing"):
        by_command(rows)

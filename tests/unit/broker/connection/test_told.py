"""What clients are told when storage fails: that it does, and nothing of how it is made."""

from __future__ import annotations

import inspect

import pytest

from geminga.broker.core.coercion import NotBuiltError
from geminga.broker.rest.calls.requests import RestError
from geminga.model import errors
from geminga.model.errors import (
    CorruptionError,
    DiskFullError,
    DiskIOError,
    GemingaError,
    LedgerFencedError,
    NoSuchLedgerError,
    StorageError,
)
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.leaks import LEAKS, leaks_of, texts_of
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame

#: As storage says it.
FAILURES: list[StorageError] = [
    DiskFullError("no space left on device: /var/lib/geminga/journal/0000000000000007.txn"),
    DiskIOError("[Errno 5] Input/output error: /data/ledgers/current/3.log"),
    LedgerFencedError("ledger 7 was fenced by another writer"),
    NoSuchLedgerError("bookie 127.0.0.1:3181 has no ledger 12"),
    CorruptionError("/data/ledgers/current/3.log at 4096: CRC of entry 12 of ledger 7"),
]


@pytest.mark.parametrize(
    "text", [*map(str, FAILURES), "KeyError: 'x'", "metadata node /managed-ledgers/a holds no JSON"]
)
def test_pattern_knows_what_storage_says(text) -> None:
    assert LEAKS.search(text)


@pytest.mark.parametrize("text", [f"Topic {TOPIC} not found", "no such resource: /admin/v2/x", "Ledger is a word"])
def test_pattern_takes_what_is_for_clients(text) -> None:
    assert not LEAKS.search(text)


def test_errors_of_storage_and_of_our_own_are_told_without_their_texts() -> None:
    hidden = 0
    for kind in [*vars(errors).values(), RestError]:
        if not (inspect.isclass(kind) and issubclass(kind, GemingaError)):
            continue
        error = kind(500, "said") if kind is RestError else kind("said")
        if issubclass(kind, (errors.StorageError, errors.LocalError)):
            hidden += 1
            assert error.told
            assert "said" not in error.told
            assert not LEAKS.search(error.told)
        else:
            assert error.told == ("said: not built" if kind is NotBuiltError else "said")
            assert kind in (RestError, NotBuiltError) or kind().told
    assert hidden > 15


async def ask_everything(client: Client) -> list[pb.BaseCommand]:
    """One command of each kind that can meet storage; the answers."""
    topic, answers = TOPIC, []
    other = "persistent://public/default/other"
    requests = [
        pb.BaseCommand(
            type=Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=other, request_id=client.next_request_id())
        ),
        pb.BaseCommand(
            type=Type.PARTITIONED_METADATA,
            partitionMetadata=pb.CommandPartitionedTopicMetadata(topic=other, request_id=client.next_request_id()),
        ),
        pb.BaseCommand(
            type=Type.PRODUCER,
            producer=pb.CommandProducer(topic=other, producer_id=8, request_id=client.next_request_id()),
        ),
        pb.BaseCommand(
            type=Type.SUBSCRIBE,
            subscribe=pb.CommandSubscribe(
                topic=topic, subscription="new", subType=1, consumer_id=8, request_id=client.next_request_id()
            ),
        ),
        pb.BaseCommand(
            type=Type.GET_LAST_MESSAGE_ID,
            getLastMessageId=pb.CommandGetLastMessageId(consumer_id=1, request_id=client.next_request_id()),
        ),
        pb.BaseCommand(
            type=Type.GET_SCHEMA, getSchema=pb.CommandGetSchema(topic=topic, request_id=client.next_request_id())
        ),
        pb.BaseCommand(
            type=Type.GET_OR_CREATE_SCHEMA,
            getOrCreateSchema=pb.CommandGetOrCreateSchema(
                topic=topic,
                request_id=client.next_request_id(),
                schema=pb.Schema(name="s", type=pb.Schema.String, schema_data=b""),
            ),
        ),
        pb.BaseCommand(
            type=Type.SEEK,
            seek=pb.CommandSeek(consumer_id=1, request_id=client.next_request_id(), message_publish_time=1),
        ),
        pb.BaseCommand(
            type=Type.UNSUBSCRIBE,
            unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=client.next_request_id(), force=True),
        ),
    ]
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=client.next_request_id())
    ack.message_id.add(ledgerId=0, entryId=0)
    client.received.clear()
    client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
    client.send_bytes(send_frame(1) + send_frame(2))
    for request in requests:
        client.send(request)
    wanted = len(requests) + 3
    while wanted > 0 and not client.is_closed:
        await client.wait_for_news()
        command, _ = client.received.popleft()
        answers.append(command)
        wanted -= command.type not in (Type.MESSAGE, Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER, Type.PING)
    return answers


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_metadata_gone", [False, True])
def test_failing_storage_is_told_without_its_names(error, is_metadata_gone) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.subscribe()
        await client.publish(0)
        await client.expect(Type.MESSAGE)
        bookie = world.bookie
        bookie.add_error = bookie.read_error = bookie.fence_error = error
        if is_metadata_gone:
            world.metadata.faults.unknown_before_percent = 100.0
        answers = await ask_everything(client)
        bookie.add_error = bookie.read_error = bookie.fence_error = None
        world.metadata.faults.unknown_before_percent = 0.0
        told = [text for answer in answers for text in texts_of(answer)]
        assert len(told) >= 2  # both messages, at the least
        assert [text for answer in answers for text in leaks_of(answer)] == []

    run_with_broker(scenario)

"""A broker of a later version refuses with an error of a number that nobody knew: it is refused all the same, and only
what was asked for."""

from __future__ import annotations

import pytest

import geminga.client as gc
from geminga.client import TransactionState as State
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.frame import encode_frame
from support.worlds.scripted_broker import run_against
from support.worlds.scripted_consumer import ConsumerScript, entry_bytes
from support.worlds.scripted_coordinator import CoordinatorScript, Type

#: Of no version so far.
CODE = 200
TOPIC = "persistent://public/default/topic"


def refusal(command: pb.BaseCommand, field: str) -> bytes:
    """The frame of an answer with that error."""
    body = getattr(command, field)
    number = body.DESCRIPTOR.fields_by_name["error"].number
    unknown = bytes((number << 3, CODE & 127 | 128, CODE >> 7))
    whole = command.SerializePartialToString()
    inner = body.SerializePartialToString()
    assert whole.endswith(bytes((len(inner),)) + inner)
    return encode_frame(whole[: -len(inner) - 1] + bytes((len(inner) + len(unknown),)) + inner + unknown)


def test_a_request_is_refused_and_the_connection_stays() -> None:
    connected: list[pb.BaseCommand] = []
    scripted = ConsumerScript([entry_bytes([b"m"])])

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.CONNECT:
            connected.append(command)
        if command.type == Type.PRODUCER:
            answer = pb.CommandError(request_id=command.producer.request_id, message="later")
            return [refusal(Type(type=Type.ERROR, error=answer), "error")]
        return scripted(command)

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s")
        with pytest.raises(gc.UnknownError, match="later"):
            await client.create_producer(TOPIC)
        assert (await consumer.receive(1000)).data() == b"m"

    run_against(script, scenario, operation_timeout_ms=1000)
    assert len(connected) == 1


def test_an_acknowledgment_is_refused() -> None:
    scripted = ConsumerScript([entry_bytes([b"m"])])

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.ACK:
            answer = pb.CommandAckResponse(consumer_id=command.ack.consumer_id, request_id=command.ack.request_id)
            return [refusal(Type(type=Type.ACK_RESPONSE, ackResponse=answer), "ackResponse")]
        return scripted(command)

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s", ack_receipt_enabled=True)
        with pytest.raises(gc.UnknownError):
            await consumer.acknowledge(await consumer.receive(1000))
        assert consumer.stats().ack_failures == 1

    run_against(script, scenario)


def test_a_commit_is_not_done() -> None:
    scripted = CoordinatorScript()

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.END_TXN:
            answer = pb.CommandEndTxnResponse(request_id=command.endTxn.request_id, txnid_least_bits=1)
            return [refusal(Type(type=Type.END_TXN_RESPONSE, endTxnResponse=answer), "endTxnResponse")]
        return scripted(command)

    async def scenario(client: gc.Client) -> None:
        txn = await client.transaction()
        with pytest.raises(gc.UnknownError):
            await txn.commit()
        assert txn.state is State.COMMITTING
        await wait_ms(10)

    run_against(script, scenario, operation_timeout_ms=1000)

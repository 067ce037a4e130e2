"""Without spans a message costs no call more: what they would take the place of is what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from geminga.broker.composition.traces import Traces
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.subscription import handle_ack_bytes
from geminga.broker.subscription.consumer import Consumer
from geminga.broker.topic.parts import TopicPart
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.python_calls import counted_calls
from support.worlds.broker_world import BrokerWorld, run_with_broker

MESSAGES = 40


class Plain:
    """What a broker without spans has, named as if it had them."""

    parts: Sequence[type[TopicPart]] = ()
    consumer_kind: Callable[..., Consumer] = Consumer

    @property
    def acknowledge(self) -> Callable[[Connection, bytes], None]:
        return handle_ack_bytes


class OneCallMore(Plain):
    """The least that a span could cost."""

    @property
    def acknowledge(self) -> Callable[[Connection, bytes], None]:
        return lambda connection, raw: handle_ack_bytes(connection, raw)


def calls_of(telemetry: Traces | None) -> int:
    """Of messages that are published, handed on and acknowledged one by one."""

    async def scenario(world: BrokerWorld) -> int:
        client = await world.publisher()
        await client.subscribe(subscription="s", subType=pb.CommandSubscribe.Shared)

        async def one(sequence_id: int) -> None:
            position = await client.publish(sequence_id)
            await client.expect_with_payload(pb.BaseCommand.MESSAGE)
            ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
            ack.message_id.add(ledgerId=position[0], entryId=position[1])
            client.send(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack))

        await one(0)
        with counted_calls() as calls:
            for number in range(1, MESSAGES + 1):
                await one(number)
            return calls()

    return run_with_broker(scenario, telemetry=telemetry)


@pytest.mark.parametrize(("telemetry", "more"), [(Plain(), 0), (OneCallMore(), MESSAGES)])
def test_a_message_costs_no_call_for_spans_that_nobody_asked_for(telemetry: Traces, more: int) -> None:
    calls_of(None)  # what is loaded by the first of them
    assert calls_of(telemetry) - calls_of(None) == more

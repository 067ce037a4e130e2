"""Clients that never read: what the broker holds for them stays bounded, and everybody else is served."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress

import pytest
from pulsar import InitialPosition

from geminga import Standalone
from geminga.broker.connection.back_pressure import WRITE_BUFFER_STOP_READING_BYTES
from geminga.broker.connection.connection import Connection
from geminga.broker.connection.core.read_gate import PauseReason
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import until
from support.processes.official import quiet_client
from support.processes.raw_protocol import RawConnection, frame

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/back-pressure"
MESSAGE_BYTES = 1 << 20
MESSAGES = 32
#: One dispatch goes beyond the mark of the write buffer: dispatcherMaxReadSizeBytes, and an entry.
DISPATCH_BYTES_MAX = 6 * MESSAGE_BYTES
#: On a machine that has other things to do.
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Standalone]:
    with Standalone() as running:
        yield running


def on_loop(broker: Standalone, question):
    """The answer of ``question()``, asked at the next turn of the broker's loop."""
    answer = Future()
    broker._loop.call_soon_threadsafe(lambda: answer.set_result(question()))
    return answer.result(PATIENCE_S)


def connection_of(broker: Standalone, client: RawConnection) -> Connection:
    """The broker's side of a client's connection."""
    connections = on_loop(broker, lambda: list(broker._broker().connections.open))
    return next(connection for connection in connections if connection.peer == f"/{client.address}")


def subscribe(client: RawConnection, subscription: str, permits: int, name: str = "") -> None:
    command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
    command.subscribe.topic, command.subscribe.subscription = TOPIC, subscription
    command.subscribe.subType = pb.CommandSubscribe.Shared
    command.subscribe.initialPosition = pb.CommandSubscribe.Earliest
    command.subscribe.consumer_id, command.subscribe.request_id = 1, 1
    command.subscribe.consumer_name = name
    client.send(frame(command))
    client.expect(pb.BaseCommand.SUCCESS)
    flow = pb.BaseCommand(type=pb.BaseCommand.FLOW)
    flow.flow.consumer_id, flow.flow.messagePermits = 1, permits
    if permits:
        client.send(frame(flow))


def test_consumer_that_never_reads_is_sent_no_more_than_the_write_buffer_holds(broker, tmp_path) -> None:
    official = quiet_client(broker.service_url, tmp_path)
    producer = official.create_producer(TOPIC, batching_enabled=False)
    for _ in range(MESSAGES):
        producer.send(bytes(MESSAGE_BYTES))
    with RawConnection(broker.broker_port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        subscribe(client, "stuck", 1_000_000)
        connection = connection_of(broker, client)
        transport = connection._transport
        until(lambda: not on_loop(broker, lambda: connection.output.is_writable), "the write buffer is full")
        reader = official.subscribe(TOPIC, "reading", initial_position=InitialPosition.Earliest)
        for _ in range(MESSAGES):
            reader.acknowledge(reader.receive(10_000))
        assert on_loop(broker, transport.get_write_buffer_size) <= DISPATCH_BYTES_MAX
        (consumer,) = connection.members.consumers.values()
        assert consumer.messages_out < MESSAGES
        # It is read from all the same: closing the consumer is heard, and another one gets everything.
        close = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
        close.close_consumer.consumer_id, close.close_consumer.request_id = 1, 2
        client.send(frame(close))
        other = official.subscribe(TOPIC, "stuck", initial_position=InitialPosition.Earliest)
        assert len([other.receive(10_000) for _ in range(MESSAGES)]) == MESSAGES
    official.close()


def test_client_that_asks_and_never_reads_is_not_heard_any_more(broker) -> None:
    with RawConnection(broker.broker_port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # Its name is in every answer: a few thousand of them fill all buffers.
        subscribe(client, "asking", 0, name="n" * 2500)
        client.socket.settimeout(1.0)
        connection = connection_of(broker, client)
        question = pb.BaseCommand(type=pb.BaseCommand.CONSUMER_STATS)
        question.consumerStats.consumer_id, question.consumerStats.request_id = 1, 5
        questions = frame(question) * 100
        sent = 0

        def is_not_heard() -> bool:
            # As much as the sockets take: a broker that is only slow must be asked on.
            nonlocal sent
            with suppress(TimeoutError):
                sent += client.socket.send(questions[sent % len(questions) :])
            return PauseReason.WRITE_BUFFER in on_loop(broker, lambda: connection.gate.reasons)

        until(is_not_heard, "nothing is read any more", PATIENCE_S)
        with pytest.raises(TimeoutError):
            for _ in range(100_000):
                client.send(questions)
        held = on_loop(broker, connection._transport.get_write_buffer_size)
        # What one turn handled is answered beyond the mark; the rest of the read waits.
        assert held <= WRITE_BUFFER_STOP_READING_BYTES + DISPATCH_BYTES_MAX
    until(
        lambda: not on_loop(broker, lambda: connection in broker._broker().connections.open), "the connection is gone"
    )

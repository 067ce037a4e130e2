"""The clients of a broker story: they keep what comes apart, and notice when the broker sends them away."""

from __future__ import annotations

import asyncio

from geminga.broker.composition.service import Broker
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.stories.broker_model import SubscriptionModel
from support.worlds.broker_world import Client, Type
from support.worlds.policy_levels import seconds


class StoryClient(Client):
    """Keeps messages, receipts and errors apart, and remembers whom the broker sent away."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.messages: list[tuple[pb.CommandMessage, bytes]] = []
        self.receipts: list[int] = []
        self.was_sent_away = False
        super().__init__(broker, port)

    def _on_write(self, data: bytes) -> None:
        for raw, payload in self._decoder.feed(data):
            command = pb.BaseCommand.FromString(bytes(raw))
            if command.type == Type.MESSAGE:
                self.messages.append((command.message, payload))
            elif command.type == Type.SEND_RECEIPT:
                self.receipts.append(command.send_receipt.sequence_id)
            elif command.type == Type.PING:
                pong = pb.BaseCommand(type=Type.PONG, pong=pb.CommandPong())
                asyncio.get_running_loop().call_soon(self.send, pong)
            elif command.type in (Type.SEND_ERROR, Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER):
                self.was_sent_away = True
            else:
                self.received.append((command, payload))
        self._news.set()

    @property
    def is_gone(self) -> bool:
        return self.is_closed or self.was_sent_away

    async def request(self, command: pb.BaseCommand) -> pb.BaseCommand | None:
        """The answer (SUCCESS of any kind, or ERROR); None if the connection ended or it did not come."""
        self.send(command)
        for _ in range(120):
            while self.received:
                answer = self.received.popleft()[0]
                if answer.type != Type.ACTIVE_CONSUMER_CHANGE:
                    return answer
            if self.is_closed:
                return None
            await seconds(0.5)
        return None


class Consumer:
    """A consumer on a connection of its own."""

    def __init__(self, client: StoryClient, topic: str, subscription: SubscriptionModel) -> None:
        self.client = client
        self.topic = topic
        self.subscription = subscription
        self.since_ms = client.broker.runtime.clock.wall_ms()
        #: Received and neither acknowledged nor given back: number -> id.
        self.held: dict[int, pb.MessageIdData] = {}

    def acknowledge(self, ids: list[pb.MessageIdData], *, cumulative: bool, request_id: int | None) -> None:
        kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        ack = pb.CommandAck(consumer_id=1, ack_type=kind, message_id=ids)
        if request_id is not None:
            ack.request_id = request_id
        self.client.send(pb.BaseCommand(type=Type.ACK, ack=ack))


def number_of(payload: bytes) -> int:
    """The number at the beginning of the message behind an entry's metadata."""
    size = int.from_bytes(payload[6:10], "big")
    return int(payload[10 + size : 22 + size])

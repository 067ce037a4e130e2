"""A plain socket that speaks just enough of Pulsar's protocol for what official clients would never send."""

from __future__ import annotations

import socket
from typing import Any, Self

import geminga
from geminga.wire._generated import pulsar_api_pb2 as pb


class RawConnection:
    """A blocking connection; frames in and out."""

    def __init__(self, port: int, *, handshake: bool = True, timeout_s: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self.socket.getsockname()[:2]
        #: Our end, as the broker sees it.
        self.address = f"{host}:{port}"
        self._buffer = b""
        if handshake:
            try:
                self._shake_hands()
            except BaseException:
                self.socket.close()
                raise

    def _shake_hands(self) -> None:
        command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        command.connect.client_version = "raw"
        command.connect.protocol_version = 20
        self.send(frame(command))
        assert self.expect(pb.BaseCommand.CONNECTED).connected.server_version

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self.socket.sendall(data)

    def receive(self) -> pb.BaseCommand | None:
        """The next command; None when the broker closed. PING is answered and passed over."""
        while True:
            while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
                try:
                    data = self.socket.recv(65536)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self._buffer += data
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            size = int.from_bytes(self._buffer[4:8], "big")
            command = pb.BaseCommand.FromString(self._buffer[8 : 8 + size])
            self._buffer = self._buffer[end:]
            if command.type != pb.BaseCommand.PING:
                return command
            self.send(frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())))

    def expect(self, kind: int) -> pb.BaseCommand:
        """The next command, which must be of ``kind``."""
        command = self.receive()
        assert command is not None, "the broker closed the connection"
        assert command.type == kind, str(command)
        return command

    def close(self) -> None:
        """Close."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def frame(command: pb.BaseCommand, payload: bytes = b"") -> bytes:
    """A command, and what goes behind it, as a frame."""
    data = command.SerializeToString()
    return (len(data) + 4 + len(payload)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + payload


def producer_frame(topic: str, *, producer_id: int = 0, request_id: int = 1) -> bytes:
    """PRODUCER."""
    command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
    command.producer.topic = topic
    command.producer.producer_id = producer_id
    command.producer.request_id = request_id
    return frame(command)


def shared_frame(topic: str, *, consumer_id: int = 0, request_id: int = 1) -> bytes:
    """SUBSCRIBE, to the Shared subscription ``s``."""
    command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
    subscribe = command.subscribe
    subscribe.topic, subscribe.subscription, subscribe.subType = topic, "s", pb.CommandSubscribe.Shared
    subscribe.consumer_id, subscribe.request_id = consumer_id, request_id
    return frame(command)


def flow_frame(permits: int, *, consumer_id: int = 0) -> bytes:
    """FLOW."""
    command = pb.BaseCommand(type=pb.BaseCommand.FLOW)
    command.flow.consumer_id, command.flow.messagePermits = consumer_id, permits
    return frame(command)


def publish_entry(broker: geminga.Standalone, topic: str, payload: bytes, **fields: Any) -> None:
    """An entry with metadata of one's own, as no client would send it."""
    with RawConnection(broker.broker_port) as raw:
        raw.send(producer_frame(topic))
        name = raw.expect(pb.BaseCommand.PRODUCER_SUCCESS).producer_success.producer_name
        metadata = pb.MessageMetadata(producer_name=name, sequence_id=0, publish_time=1, **fields).SerializeToString()
        command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=pb.CommandSend(producer_id=0, sequence_id=0))
        raw.send(frame(command, len(metadata).to_bytes(4, "big") + metadata + payload))
        raw.expect(pb.BaseCommand.SEND_RECEIPT)

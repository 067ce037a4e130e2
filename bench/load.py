"""The load generator: a process of its own, blocking sockets and epoll, frames encoded beforehand.

Every receipt is counted and checked: its sequence id must be the next one of its connection, and anything but a
receipt (an error, a close) fails the run. One receipt costs about half a microsecond here, so that one generator
process can follow several hundred thousand a second.

Run as ``python -m bench.load '{"mode": "publish", ...}'``; the answer is one JSON line.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from array import array
from pathlib import Path
from struct import Struct
from typing import Any

import crc32c

from bench.answers import tell
from bench.frames import (
    PRODUCER_NAME,
    SEQUENCE_OFFSET,
    Frames,
    ack_frame,
    close_consumer_frame,
    connect_frame,
    flow_frame,
    producer_frame,
    subscribe_frame,
    varint,
)
from geminga.wire._generated import pulsar_api_pb2 as pb

HEAD = Struct(">II")
CHECKSUM = Struct(">I")
RECEIVE_BYTES = 1 << 18
CONNECT_TIMEOUT_S = 30
#: A run that hears nothing for so long has failed.
SILENCE_S = 30
#: The warm-up ends at the latest when this share of all sends is answered.
WARMUP_SHARE_MAX = 0.2
#: What is burnt in one go.
BURN_S = 0.001
PONG = HEAD.pack(9, 5) + b"\x08\x13\x9a\x01\x00"


class LoadError(Exception):
    """The broker answered what a load generator must not see."""


def describe(data: bytes) -> str:
    """A command in words."""
    return str(pb.BaseCommand.FromString(bytes(data))).replace("\n", " ")[:400]


def open_connection(port: int) -> socket.socket:
    """A connected socket behind CONNECT and CONNECTED."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=CONNECT_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(connect_frame())
    expect(connection, pb.BaseCommand.CONNECTED)
    return connection


def read_command(connection: socket.socket) -> pb.BaseCommand:
    """The next command of a blocking socket (without payload)."""
    size = int.from_bytes(read_exactly(connection, 4), "big")
    data = read_exactly(connection, size)
    return pb.BaseCommand.FromString(data[4 : 4 + int.from_bytes(data[:4], "big")])


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """``count`` bytes."""
    out = bytearray()
    while len(out) < count:
        data = connection.recv(count - len(out))
        if not data:
            raise LoadError("the broker closed the connection")
        out += data
    return bytes(out)


def expect(connection: socket.socket, kind: int) -> pb.BaseCommand:
    """The next command but PING, which must be of ``kind``."""
    while True:
        command = read_command(connection)
        if command.type == pb.BaseCommand.PING:
            connection.sendall(PONG)
        elif command.type == kind:
            return command
        else:
            raise LoadError(f"unexpected answer: {str(command)[:400]}")


def open_producer(port: int, topic: str) -> socket.socket:
    """A connection with producer 0 on ``topic``."""
    connection = open_connection(port)
    connection.sendall(producer_frame(topic))
    expect(connection, pb.BaseCommand.PRODUCER_SUCCESS)
    return connection


class Publisher:
    """One connection that keeps a window of sends in flight."""

    def __init__(self, port: int, topic: str, frames: Frames, sequences: list[bytes]) -> None:
        self.socket = open_producer(port, topic)
        self.socket.setblocking(False)
        self.frames = frames
        self.sequences = sequences
        self.received = 0  # receipts, which is also the sequence id expected next
        self.released = 0  # sends that may go out
        self.sent_bytes = 0
        self.tail = b""

    def release(self, until: int) -> bool:
        """Let the sends before ``until`` go; False if the socket would not take all."""
        self.released = until
        end = self.frames.ends[until]
        data = self.frames.data
        while self.sent_bytes < end:
            try:
                self.sent_bytes += self.socket.send(data[self.sent_bytes : end])
            except BlockingIOError:
                return False
        return True

    def receive(self) -> int:
        """Take what came; the number of receipts in it."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            raise LoadError("the broker closed the connection")
        if self.tail:
            data = self.tail + data
        unpack, sequences, expected = HEAD.unpack_from, self.sequences, self.received
        position, size = 0, len(data)
        while size - position >= 8:
            total, command_size = unpack(data, position)
            end = position + 4 + total
            if end > size:
                break
            if not data.startswith(sequences[expected], position + SEQUENCE_OFFSET) or data[position + 9] != 7:
                self.other(data[position + 8 : position + 8 + command_size])
            else:
                expected += 1
            position = end
        self.tail = data[position:]
        count = expected - self.received
        self.received = expected
        return count

    def other(self, command: bytes) -> None:
        """Something that is not the receipt expected next."""
        if command[:2] != b"\x08\x12":
            raise LoadError(f"expected the receipt of {self.received}, got {describe(command)}")
        self.socket.send(PONG)


def publish(o: dict[str, Any]) -> dict[str, Any]:
    """As fast as a window allows. ``seconds`` are measured, behind a warm-up that is not."""
    frames = Frames(Path(o["frames"]))
    sequences = [varint(i) + b"\x1a" for i in range(len(frames) + 1)]
    topics = o["topics"]
    # Where each topic is, if not all are at one broker.
    ports = o.get("ports") or [o["port"]] * len(topics)
    publishers = [
        Publisher(ports[i % len(topics)], topics[i % len(topics)], frames, sequences) for i in range(o["connections"])
    ]
    window = max(1, o["in_flight"] // len(publishers))
    count = min(len(frames), o.get("count") or len(frames))
    by_fd = {p.socket.fileno(): p for p in publishers}
    poll = select.epoll()
    started = time.perf_counter()
    measured_from, measured_receipts, received = started, 0, 0
    warm_at, end_at = started + o.get("warmup_s", 0.0), started + o.get("warmup_s", 0.0) + o.get("seconds", 1e9)
    for fd, publisher in by_fd.items():
        whole = publisher.release(min(window, count))
        poll.register(fd, select.EPOLLIN | (0 if whole else select.EPOLLOUT))
    now = started
    total = count * len(publishers)
    while received < total and now < end_at:
        events = poll.poll(SILENCE_S)
        if not events:
            raise LoadError(f"silence for {SILENCE_S} s after {received} receipts")
        for fd, mask in events:
            publisher = by_fd[fd]
            if mask & select.EPOLLIN:
                received += publisher.receive()
            whole = publisher.release(min(publisher.received + window, count))
            if not whole or mask & select.EPOLLOUT:
                poll.modify(fd, select.EPOLLIN | (0 if whole else select.EPOLLOUT))
        now = time.perf_counter()
        if (now < warm_at and received < total * WARMUP_SHARE_MAX) or not measured_receipts:
            measured_from, measured_receipts = now, received
    cpu = time.process_time()
    return {
        "receipts": received,
        "seconds": now - measured_from,
        "rate": (received - measured_receipts) / max(now - measured_from, 1e-9),
        "whole_rate": received / (now - started),
        "generator_cpu": cpu / (now - started),
        "exhausted": received >= total,
    }


def paced(o: dict[str, Any]) -> dict[str, Any]:
    """At a fixed rate, open loop: latency counts from when a send was due, not from when it went out."""
    frames = Frames(Path(o["frames"]))
    sequences = [varint(i) + b"\x1a" for i in range(len(frames) + 1)]
    publisher = Publisher(o["port"], o["topics"][0], frames, sequences)
    rate, count = o["rate"], min(len(frames), int(o["rate"] * (o["seconds"] + o["warmup_s"])))
    latencies = array("d", [0.0]) * count
    clock = time.perf_counter
    started = clock()
    while publisher.received < count:
        now = clock()
        due = min(count, int((now - started) * rate) + 1)
        if due > publisher.released or publisher.sent_bytes < frames.ends[publisher.released]:
            publisher.release(due)
        next_due = started + publisher.released / rate if publisher.released < count else now + SILENCE_S
        readable, _, _ = select.select([publisher.socket], [], [], max(0.0, next_due - clock()))
        if readable:
            before = publisher.received
            publisher.receive()
            now = clock()
            for i in range(before, publisher.received):
                latencies[i] = now - (started + i / rate)
        elif publisher.released >= count:
            raise LoadError(f"silence for {SILENCE_S} s after {publisher.received} receipts")
    kept = sorted(latencies[int(rate * o["warmup_s"]) :])
    at = {f"p{p}": kept[min(len(kept) - 1, int(len(kept) * p / 100))] * 1000 for p in (50, 99, 99.9)}
    return {**at, "max": kept[-1] * 1000, "count": len(kept), "rate": rate}


def consume(o: dict[str, Any]) -> dict[str, Any]:
    """Receive ``count`` messages of one topic, check CRC and, of one publisher, order; acknowledge as it goes."""
    count, permits, individual = o["count"], o["permits"], o["acks"] == "individual"
    # MessageMetadata: producer name, then the sequence id, then the tag of the publish time.
    head = b"\x0a" + varint(len(PRODUCER_NAME)) + PRODUCER_NAME.encode() + b"\x10"
    orders = [head + varint(i) + b"\x18" for i in range(count)] if o["in_order"] else []
    connection = open_connection(o["port"])
    connection.sendall(subscribe_frame(o["topics"][0], o["subscription"]))
    expect(connection, pb.BaseCommand.SUCCESS)
    if o.get("announce"):
        print(json.dumps({"subscribed": True}), flush=True)
    connection.settimeout(SILENCE_S)
    started = first = 0.0
    connection.sendall(flow_frame(permits))
    started = time.perf_counter()
    received = granted = 0
    tail = b""
    ids: list[bytes] = []
    unpack, unpack_checksum, checksum = HEAD.unpack_from, CHECKSUM.unpack_from, crc32c.crc32c
    while received < count:
        data = connection.recv(1 << 20)
        if not data:
            raise LoadError(f"the broker closed the connection after {received} messages")
        if tail:
            data = tail + data
        if not first:
            first = time.perf_counter()
        view = memoryview(data)
        position, size = 0, len(data)
        while size - position >= 8:
            total, command_size = unpack(data, position)
            end = position + 4 + total
            if end > size:
                break
            if data[position + 9] == 9:
                body = position + 8 + command_size
                if checksum(view[body + 6 : end]) != unpack_checksum(data, body + 2)[0]:
                    raise LoadError(f"message {received} is damaged")
                if orders and not data.startswith(orders[received], body + 10):
                    raise LoadError(f"message {received} is out of order")
                received += 1
                if individual:
                    ids.append(data[position + 16 : position + 16 + data[position + 15]])
                last = position
            elif data[position + 9] == 18:
                connection.sendall(PONG)
            elif data[position + 9] != 31:  # ACTIVE_CONSUMER_CHANGE
                raise LoadError(f"unexpected: {describe(data[position + 8 : position + 8 + command_size])}")
            position = end
        if received - granted >= permits // 2:
            if not individual:
                ids = [data[last + 16 : last + 16 + data[last + 15]]]
            connection.sendall(ack_frame(ids, is_cumulative=not individual) + flow_frame(received - granted))
            granted, ids = received, []
        tail = data[position:]
    now = time.perf_counter()
    return {
        "messages": received,
        "seconds": now - started,
        "rate": received / (now - (first if o.get("from_first") else started)),
        "generator_cpu": time.process_time() / (now - started),
    }


def subscribe_many(o: dict[str, Any]) -> dict[str, Any]:
    """Make ``count`` topics with one durable subscription each, then close the consumers again."""
    connection = open_connection(o["port"])
    window = 64
    first, count = o["first"], o["count"]
    for begin in range(first, first + count, window):
        numbers = range(begin, min(begin + window, first + count))
        connection.sendall(
            b"".join(
                subscribe_frame(f"{o['topics'][0]}-{i}", "bench", request_id=2 * i + 1, consumer_id=i) for i in numbers
            )
        )
        for _ in numbers:
            expect(connection, pb.BaseCommand.SUCCESS)
        connection.sendall(b"".join(close_consumer_frame(i, 2 * i + 2) for i in numbers))
        for _ in numbers:
            expect(connection, pb.BaseCommand.SUCCESS)
    return {"topics": count}


def burn(o: dict[str, Any]) -> dict[str, Any]:
    """Use ``share`` of a core until killed, a millisecond at a time, for nothing."""
    print(json.dumps({"burns": o["share"]}), flush=True)
    started, used_before = time.perf_counter(), time.process_time()
    while True:
        now = time.perf_counter()
        if time.process_time() - used_before >= (now - started) * o["share"]:
            time.sleep(BURN_S)
        else:
            while time.perf_counter() - now < BURN_S:
                pass


MODES = {"burn": burn, "publish": publish, "paced": paced, "consume": consume, "subscribe": subscribe_many}


if __name__ == "__main__":
    sys.exit(tell(lambda o: MODES[o["mode"]](o), (LoadError, OSError)))

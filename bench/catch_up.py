"""Catching up over entries of very different sizes, as unfriendly as they come.

What is delivered stands beside what the broker read for it (``rchar`` of the process, which has the little that clients
send, too), beside the most memory it had, and beside the longest wait of another client for the answer to a PING.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Self

from tools.standalone_process import StandaloneProcess

from bench.frames import send_frame
from bench.load import HEAD, expect, open_connection, open_producer
from bench.measure import TOPIC, Row, consume
from bench.servers import Bench
from geminga.wire._generated import pulsar_api_pb2 as pb

TINY = 100
HUGE = 4_700_000
TINY_COUNT = 20_000
HUGE_COUNT = 60
#: Receipts that may be outstanding, in messages and bytes.
WINDOW_MESSAGES = 500
WINDOW_BYTES = 20_000_000
PING = HEAD.pack(9, 5) + b"\x08\x12\x92\x01\x00"
PING_EVERY_S = 0.01
#: Goals: read / delivered, and resident MB.
READ_SHARE_MAX = 2.0
RESIDENT_MB_MAX = 300

PATTERNS: dict[str, list[int]] = {
    "20,000 tiny, then 60 huge": [TINY] * TINY_COUNT + [HUGE] * HUGE_COUNT,
    "60 huge, then 20,000 tiny": [HUGE] * HUGE_COUNT + [TINY] * TINY_COUNT,
    "huge and tiny in turn": [HUGE, TINY] * HUGE_COUNT,
}


def catch_up(bench: Bench) -> list[Row]:
    """Each pattern: stored, the broker restarts (cold caches), one consumer reads it all."""
    rows = []
    for number, (name, sizes) in enumerate(PATTERNS.items()):
        topic = f"{TOPIC}-catch-up-{number}"
        with bench.product() as broker:
            publish(broker.broker_port, topic, sizes)
            broker.stop()
            broker.start()
            before = read_bytes(broker)
            with Pings(broker.broker_port) as pings:
                answer = consume(broker, topic, len(sizes), "cumulative")
            read = read_bytes(broker) - before
            resident = peak_resident_bytes(broker)
        delivered = sum(sizes)
        share = read / delivered
        met = share < READ_SHARE_MAX and resident / 1e6 < RESIDENT_MB_MAX
        rows.append(
            {
                "pattern": name,
                "delivered MB": round(delivered / 1e6),
                "read MB": round(read / 1e6),
                "read / delivered": share,
                "peak MB": round(resident / 1e6),
                "MB/s": round(delivered / 1e6 * answer["rate"] / len(sizes)),
                "longest PING, ms": round(pings.longest_s * 1000),
                "met": "yes" if met else "NO",
            }
        )
    return rows


def publish(port: int, topic: str, sizes: list[int]) -> None:
    """Messages of these sizes, durably."""
    connection = open_producer(port, topic)
    waiting: list[int] = []
    for sequence_id, size in enumerate(sizes):
        connection.sendall(send_frame(sequence_id, b"x" * size))
        waiting.append(size)
        while len(waiting) > WINDOW_MESSAGES or sum(waiting) > WINDOW_BYTES:
            expect(connection, pb.BaseCommand.SEND_RECEIPT)
            del waiting[0]
    for _ in waiting:
        expect(connection, pb.BaseCommand.SEND_RECEIPT)
    connection.close()


class Pings:
    """Another client, which wants nothing but an answer."""

    def __init__(self, port: int) -> None:
        self.longest_s = 0.0
        self._connection: socket.socket = open_connection(port)
        self._is_over = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._is_over:
            began = time.perf_counter()
            self._connection.sendall(PING)
            expect(self._connection, pb.BaseCommand.PONG)
            self.longest_s = max(self.longest_s, time.perf_counter() - began)
            time.sleep(PING_EVERY_S)


def read_bytes(broker: StandaloneProcess) -> int:
    """Bytes that the process read so far, from files and from clients."""
    return _value(broker, "io", "rchar:")


def peak_resident_bytes(broker: StandaloneProcess) -> int:
    """The most memory that the process ever had."""
    return _value(broker, "status", "VmHWM:") * 1024


def _value(broker: StandaloneProcess, file: str, name: str) -> int:
    lines = Path(f"/proc/{broker.pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

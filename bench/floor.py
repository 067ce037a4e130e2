"""The bare floor: the least an asyncio server must do for a durable publish. Run: python -m bench.floor DIR

It frames, checks CRC32C, commits groups with one write and one fdatasync each on a thread (preallocated file, one
group in flight, the next gathering meanwhile), and answers. What it stores can not even be found again.
``--codec generated`` reads SEND and writes receipts with the generated protobuf classes, as any server would that
takes every client's frames; ``fixed`` knows where this load generator puts its fields: no server, only a lower bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import threading
from struct import Struct

import crc32c
import uvloop

from bench.frames import varint
from geminga.wire._generated import pulsar_api_pb2 as pb

HEAD = Struct(">II")
CHECKSUM = Struct(">I")
PREALLOCATE_BYTES = 64 << 20


def frame(command: bytes) -> bytes:
    """A command as a frame."""
    return HEAD.pack(len(command) + 4, len(command)) + command


def generated_receipt(command: bytes, entry_id: int) -> bytes:
    """The receipt of a SEND, by the generated classes."""
    send = pb.BaseCommand.FromString(command).send
    answer = pb.BaseCommand(type=7)
    receipt = answer.send_receipt
    receipt.producer_id, receipt.sequence_id = send.producer_id, send.sequence_id
    receipt.message_id.ledgerId, receipt.message_id.entryId = 1, entry_id
    return frame(answer.SerializeToString())


def fixed_receipt(command: bytes, entry_id: int) -> bytes:
    """The same for a SEND of exactly producer id (one byte) and sequence id: both are copied as they are."""
    entry = varint(entry_id)
    body = command[4:] + bytes((0x1A, len(entry) + 3, 8, 1, 16)) + entry
    return HEAD.pack(len(body) + 8, len(body) + 4) + bytes((8, 7, 0x3A, len(body))) + body


class Journal:
    """Group commit: whoever waits is synced together."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.offset = self.allocated = self.entries = 0
        self.loop, self.is_syncing = loop, False
        self.waiting: list[tuple[asyncio.Transport, bytes]] = []
        self.records: list[bytes] = []
        self.jobs: queue.SimpleQueue[tuple[list[bytes], list[tuple[asyncio.Transport, bytes]]]] = queue.SimpleQueue()
        threading.Thread(target=self.write_groups, daemon=True).start()

    def submit(self) -> None:
        """Hand over what has gathered, unless a group is on its way."""
        if self.records and not self.is_syncing:
            self.is_syncing = True
            self.jobs.put((self.records, self.waiting))
            self.records, self.waiting = [], []

    def write_groups(self) -> None:
        """The disk's thread."""
        while True:
            records, waiting = self.jobs.get()
            data = b"".join(records)
            if self.offset + len(data) > self.allocated:
                self.allocated = self.offset + len(data) + PREALLOCATE_BYTES
                os.posix_fallocate(self.file, self.offset, self.allocated - self.offset)
            os.pwrite(self.file, data, self.offset)
            os.fdatasync(self.file)
            self.offset += len(data)
            self.loop.call_soon_threadsafe(self.synced, waiting)

    def synced(self, waiting: list[tuple[asyncio.Transport, bytes]]) -> None:
        """Answer a group; start the next."""
        self.is_syncing = False
        self.submit()
        for transport, receipts in waiting:
            if not transport.is_closing():
                transport.write(receipts)


class FloorProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, journal: Journal, codec: str) -> None:
        self.journal, self.tail = journal, b""
        self.receipt = generated_receipt if codec == "generated" else fixed_receipt

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        data = self.tail + data if self.tail else data
        view, journal, position, size, receipts = memoryview(data), self.journal, 0, len(data), []
        while size - position >= 8:
            total, command_size = HEAD.unpack_from(data, position)
            end, start = position + 4 + total, position + 8 + command_size
            if end > size:
                break
            if data[position + 9] != 6:  # not SEND
                self.other(pb.BaseCommand.FromString(data[position + 8 : start]))
            elif crc32c.crc32c(view[start + 6 : end]) != CHECKSUM.unpack_from(data, start + 2)[0]:
                return self.transport.abort()
            else:
                journal.records.append(data[position:end])
                receipts.append(self.receipt(data[position + 8 : start], journal.entries))
                journal.entries += 1
            position = end
        self.tail = data[position:]
        if receipts:
            journal.waiting.append((self.transport, b"".join(receipts)))
            journal.submit()

    def other(self, command: pb.BaseCommand) -> None:
        """CONNECT and PRODUCER."""
        answer = pb.BaseCommand(type=pb.BaseCommand.CONNECTED, connected=pb.CommandConnected(server_version="floor"))
        if command.type == pb.BaseCommand.PRODUCER:
            answer = pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS)
            answer.producer_success.request_id = command.producer.request_id
            answer.producer_success.producer_name = "floor"
        self.transport.write(frame(answer.SerializeToString()))


async def serve(directory: str, codec: str) -> None:
    """Serve until killed."""
    journal = Journal(os.path.join(directory, "floor.journal"), asyncio.get_running_loop())
    server = await asyncio.get_running_loop().create_server(lambda: FloorProtocol(journal, codec), "127.0.0.1", 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--codec", choices=("generated", "fixed"), default="generated")
    arguments = parser.parse_args()
    {"asyncio": asyncio.run, "uvloop": uvloop.run}[arguments.loop](serve(arguments.directory, arguments.codec))

"""The load generator for what a cluster of broker processes is asked: lookups, topics whose broker is killed, and new
ones.

Run as ``python -m bench.cluster_load '{"mode": "lookup", ...}'``; the answer is one JSON line, as of ``bench.load``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import select
import sys
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from bench.answers import tell
from bench.frames import connect_frame, frame, send_frame
from bench.load import PONG, RECEIVE_BYTES, SILENCE_S, LoadError, describe, open_connection
from geminga.broker.ownership.core.bundles import topic_hash
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Topics that are opened at once, as by many clients that come back.
WINDOW: Final = 100
#: Producers of one connection.
PRODUCERS_EACH: Final = 1_000
#: Seconds until a topic that nobody could serve is asked for again.
AGAIN_S: Final = 0.05
#: In which every topic must be served again, seconds.
SERVED_S_MAX: Final = 240.0


def lookup_frame(topic: str, request_id: int) -> bytes:
    """LOOKUP, as a client's first."""
    command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
    command.lookupTopic.topic = topic
    command.lookupTopic.request_id = request_id
    return frame(command)


class _Asker:
    """One connection that keeps a window of lookups in flight."""

    def __init__(self, port: int, frames: Sequence[bytes], window: int, owner_port: int) -> None:
        self.socket = open_connection(port)
        self._frames = frames
        self._url_end = f":{owner_port}"
        self._sent = 0
        self._tail = b""
        self.answered = 0
        self._send(window)

    def _send(self, count: int) -> None:
        frames, start = self._frames, self._sent
        self._sent += count
        self.socket.sendall(b"".join(frames[number % len(frames)] for number in range(start, self._sent)))

    def receive(self) -> None:
        """Take what came, and ask for as many again."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise LoadError("the broker closed the connection")
        data = self._tail + data
        position, count = 0, 0
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            command = pb.BaseCommand.FromString(data[position + 8 : end])
            if command.type == pb.BaseCommand.PING:
                self.socket.sendall(PONG)
            elif not self._is_good(command):
                raise LoadError(f"unexpected answer: {describe(data[position + 8 : end])}")
            else:
                count += 1
            position = end
        self._tail = data[position:]
        self.answered += count
        if count:
            self._send(count)

    def _is_good(self, command: pb.BaseCommand) -> bool:
        answer = command.lookupTopicResponse
        is_told = answer.response == pb.CommandLookupTopicResponse.Connect
        return is_told and answer.brokerServiceUrl.endswith(self._url_end)


def lookup(o: dict[str, Any]) -> dict[str, Any]:
    """As many lookups as a window allows, for ``seconds``; each must be answered with the broker on ``owner_port``."""
    frames = [lookup_frame(topic, number + 1) for number, topic in enumerate(o["topics"])]
    askers = [_Asker(o["port"], frames, o["window"], o["owner_port"]) for _ in range(o["connections"])]
    by_fd = {asker.socket.fileno(): asker for asker in askers}
    poll = select.epoll()
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    started = now = time.perf_counter()
    while now < started + o["seconds"]:
        events = poll.poll(SILENCE_S)
        if not events:
            raise LoadError(f"silence for {SILENCE_S} s")
        for fd, _ in events:
            by_fd[fd].receive()
        now = time.perf_counter()
    answered = sum(asker.answered for asker in askers)
    return {"answered": answered, "rate": answered / (now - started)}


# ---- topics that are taken over -----------------------------------------------------------------------------------


class _Connection:
    """One to a broker: requests by number, receipts by producer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: dict[tuple[str, int], asyncio.Future[pb.BaseCommand]] = {}
        self._next_id = 1
        self.producers = 0
        #: When it was lost; 0: it is there.
        self.lost_at = 0.0
        self.gone = asyncio.Event()
        self._task = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, port: int) -> _Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(connect_frame())
        return cls(reader, writer)

    async def request(self, command: pb.BaseCommand, part: str) -> pb.BaseCommand:
        """The answer to a request, an ERROR included. Raises OSError when the connection is lost."""
        number = self._next_id
        self._next_id += 1
        getattr(command, part).request_id = number
        return await self._wait(("request", number), frame(command))

    async def send(self, producer_id: int, sequence_id: int) -> pb.BaseCommand:
        """The receipt of a message of 100 bytes."""
        data = send_frame(sequence_id, b"x" * 100)
        size = int.from_bytes(data[4:8], "big")
        command = pb.BaseCommand.FromString(data[8 : 8 + size])
        command.send.producer_id = producer_id
        encoded, rest = command.SerializeToString(), data[8 + size :]
        length = (len(encoded) + 4 + len(rest)).to_bytes(4, "big")
        return await self._wait(("receipt", producer_id), length + len(encoded).to_bytes(4, "big") + encoded + rest)

    async def _wait(self, key: tuple[str, int], data: bytes) -> pb.BaseCommand:
        if self.lost_at:
            raise ConnectionResetError("lost before")
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._writer.write(data)
        return await answer

    async def _read(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                data = await self._reader.readexactly(size)
                self._got(pb.BaseCommand.FromString(data[4 : 4 + int.from_bytes(data[:4], "big")]))
        except (OSError, asyncio.IncompleteReadError):
            self.lost_at = time.perf_counter()
            self.gone.set()
            waiting, self._waiting = self._waiting, {}
            for answer in waiting.values():
                answer.set_exception(ConnectionResetError("lost"))

    def _got(self, command: pb.BaseCommand) -> None:
        kind = pb.BaseCommand
        if command.type == kind.PING:
            self._writer.write(PONG)
        elif command.type == kind.PRODUCER_SUCCESS:
            self._answer("request", command.producer_success.request_id, command)
        elif command.type == kind.LOOKUP_RESPONSE:
            self._answer("request", command.lookupTopicResponse.request_id, command)
        elif command.type == kind.ERROR:
            self._answer("request", command.error.request_id, command)
        elif command.type == kind.SEND_RECEIPT:
            self._answer("receipt", command.send_receipt.producer_id, command)
        elif command.type == kind.SEND_ERROR:
            self._answer("receipt", command.send_error.producer_id, command)

    def _answer(self, kind: str, number: int, command: pb.BaseCommand) -> None:
        answer = self._waiting.pop((kind, number), None)
        if answer is not None:
            answer.set_result(command)


class _Clients:
    """Connections by port, as many as their producers need."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._by_port: dict[int, asyncio.Task[_Connection]] = {}
        #: Why a topic could not be served, the last time.
        self.last_error = ""

    async def connection(self, port: int) -> _Connection:
        """One with room for another producer."""
        task = self._by_port.get(port)
        if task is None or (task.done() and _is_used_up(task)):
            task = self._by_port[port] = asyncio.ensure_future(_Connection.open(port))
        return await task

    async def serve(self, topic: str) -> None:
        """Look the topic up, open a producer where it is, and have a message acknowledged there. Raises OSError."""
        command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        command.lookupTopic.topic = topic
        port = self._port
        while True:
            answer = await (await self.connection(port)).request(command, "lookupTopic")
            found = answer.lookupTopicResponse
            if answer.type == pb.BaseCommand.ERROR or found.response == pb.CommandLookupTopicResponse.Failed:
                raise OSError(f"lookup: {found.message or answer.error.message}")
            port = urlsplit(found.brokerServiceUrl).port or port
            if found.response == pb.CommandLookupTopicResponse.Connect:
                break
            command.lookupTopic.authoritative = found.authoritative
        connection = await self.connection(port)
        connection.producers += 1
        producer_id = connection.producers
        command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER)
        command.producer.topic = topic
        command.producer.producer_id = producer_id
        answer = await connection.request(command, "producer")
        if answer.type != pb.BaseCommand.PRODUCER_SUCCESS:
            raise OSError(f"producer: {answer.error.message}")
        receipt = await connection.send(producer_id, 0)
        if receipt.type != pb.BaseCommand.SEND_RECEIPT:
            raise OSError(f"send: {receipt.send_error.message}")

    async def serve_all(self, topics: Sequence[str], served: dict[str, float]) -> None:
        """Until each is served, in their order; ``served``: when it was."""
        waiting = iter(topics)

        async def go_on() -> None:
            for topic in waiting:
                while True:
                    try:
                        await self.serve(topic)
                    except OSError as error:
                        self.last_error = str(error)
                        await asyncio.sleep(AGAIN_S)
                    else:
                        break
                served[topic] = time.perf_counter()

        try:
            async with asyncio.timeout(SERVED_S_MAX):
                await asyncio.gather(*(go_on() for _ in range(min(WINDOW, len(topics)))))
        except TimeoutError:
            raise LoadError(f"{len(served)} of {len(topics)} topics are served: {self.last_error}") from None


def _is_used_up(task: asyncio.Task[_Connection]) -> bool:
    if task.cancelled() or task.exception() is not None:
        return True
    connection = task.result()
    return bool(connection.lost_at) or connection.producers >= PRODUCERS_EACH


def takeover(o: dict[str, Any]) -> dict[str, Any]:
    """Open a producer on each of ``count`` topics, tell so, and when their broker is gone open them all again.

    They are those ``{prefix}{number}`` whose hash lies in ``ranges``: bundles of the broker on ``port``. The first
    ``used`` come first. Lookups go to ``other_port``.
    """
    return asyncio.run(_takeover(o))


async def _takeover(o: dict[str, Any]) -> dict[str, Any]:
    ranges = [range(lower, upper) for lower, upper in o["ranges"]]
    names = (f"{o['prefix']}{number}" for number in itertools.count())
    in_ranges = (name for name in names if any(topic_hash(name) in each for each in ranges))
    topics, used = list(itertools.islice(in_ranges, o["count"])), o["used"]
    began = time.perf_counter()
    before = _Clients(o["port"])
    await before.serve_all(topics, {})
    opened_s = time.perf_counter() - began
    watched = await before.connection(o["port"])
    print(json.dumps({"opened": len(topics)}), flush=True)
    await watched.gone.wait()
    lost_at = watched.lost_at
    served: dict[str, float] = {}
    after = _Clients(o["other_port"])
    await after.serve_all(topics, served)
    seconds = sorted(at - lost_at for at in served.values())
    of_used = sorted(served[topic] - lost_at for topic in topics[:used])
    return {
        "opened_rate": len(topics) / opened_s,
        "used_p50_s": of_used[len(of_used) // 2],
        "used_p99_s": of_used[int(len(of_used) * 0.99)],
        "first_s": seconds[0],
        "all_s": seconds[-1],
        "rate": len(topics) / (seconds[-1] - seconds[0]),
    }


def first(o: dict[str, Any]) -> dict[str, Any]:
    """Open a producer on each of ``count`` topics ``{prefix}{number}``, and have a message acknowledged there."""
    topics = [f"{o['prefix']}{number}" for number in range(o["count"])]
    began = time.perf_counter()
    asyncio.run(_Clients(o["port"]).serve_all(topics, {}))
    return {"rate": len(topics) / (time.perf_counter() - began)}


MODES = {"lookup": lookup, "takeover": takeover, "first": first}


if __name__ == "__main__":
    sys.exit(tell(lambda o: MODES[o["mode"]](o), (LoadError, OSError)))

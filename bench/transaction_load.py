"""Transactions put on a broker by our client: ``python -m bench.transaction_load '{"mode": "publish", ...}'``.

One JSON line out: what was done a second, what it cost, and how long the ends took. The same load without transactions
(``messages`` sent, then awaited, by each lane) is what they are compared with: a lane has one group of messages under
way, in a transaction or not, and there are as many lanes either way.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from bench.answers import tell
from geminga.client import Client, Consumer, ConsumerType, InitialPosition, Producer, Transaction, connect

Options = dict[str, Any]
Answer = dict[str, Any]
#: One group of a lane, given its number; how many messages it had.
Group = Callable[[int], Awaitable[int]]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: Both the same: the batches of the client's defaults.
PENDING_MESSAGES_MAX: Final = 100_000
#: Of the transactions; nothing here takes as long.
TIMEOUT_S: Final = 120
#: Messages that are put into a source at a time, and how far ahead of those that were taken.
FED_AT_ONCE: Final = 1_000
FED_AHEAD: Final = 20_000
#: Milliseconds until a message must have come.
RECEIVE_LIMIT_MS: Final = 30_000


class Wrong(Exception):
    """What was received is not what was committed."""


class Window:
    """What was done in the measured time: groups, messages, times of ends, processor time of both sides."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.is_open = False
        self.groups = 0
        self.messages = 0
        #: Seconds from the call of ``commit`` (or of the last ``send``) to its answer.
        self.ends: list[float] = []
        self._started = self._client = self._server = 0.0

    def _server_seconds(self) -> float:
        with open(f"/proc/{self._pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def open(self) -> None:
        """From here on it counts."""
        self.is_open = True
        self._started, self._client, self._server = time.perf_counter(), time.process_time(), self._server_seconds()

    def add(self, messages: int) -> None:
        """A group is done."""
        if self.is_open:
            self.groups += 1
            self.messages += messages

    def ended(self, since: float) -> None:
        """A commit or abort was answered."""
        if self.is_open:
            self.ends.append(time.perf_counter() - since)

    def close(self) -> Answer:
        """The answer."""
        self.is_open = False
        seconds = time.perf_counter() - self._started
        if not self.messages:
            raise Wrong("nothing was finished in the measured time")
        ends = sorted(self.ends) or [0.0]
        return {
            "rate": self.messages / seconds,
            "groups": self.groups / seconds,
            "cpu_us": (self._server_seconds() - self._server) * 1e6 / self.messages,
            "client_us": (time.process_time() - self._client) * 1e6 / self.messages,
            "p50": ends[len(ends) // 2] * 1000,
            "p99": ends[min(len(ends) - 1, len(ends) * 99 // 100)] * 1000,
        }


class Load:
    """One run of one mode."""

    def __init__(self, client: Client, options: Options) -> None:
        self.client = client
        self.options = options
        self.window = Window(options["pid"])
        self.payload = b"x" * options.get("size", 100)
        self.messages: int = options.get("messages", 1)
        self.in_transaction: bool = options.get("in_transaction", True)

    async def producers(self, count: int) -> list[Producer[bytes]]:
        """One for each topic."""
        batching = {"batching_enabled": self.options.get("batched", True)}
        return [
            await self.client.create_producer(
                self.topic(index), max_pending_messages=PENDING_MESSAGES_MAX, send_timeout_millis=120_000, **batching
            )
            for index in range(count)
        ]

    def topic(self, index: int) -> str:
        """Name of one of the load's topics."""
        return f"{self.options['topic']}-{index}"

    async def begin(self) -> Transaction:
        """A new one."""
        return await self.client.transaction(timeout=TIMEOUT_S)

    async def end(self, txn: Transaction, *, commit: bool = True) -> None:
        """Commit or abort, timed."""
        since = time.perf_counter()
        await (txn.commit() if commit else txn.abort())
        self.window.ended(since)

    async def put(self, group: Group) -> Answer:
        """Lanes that do one group after the other, for as long as is to be measured."""
        is_over = False
        numbers = iter(range(1 << 60))

        async def lane() -> None:
            while not is_over:
                self.window.add(await group(next(numbers)))

        lanes = [asyncio.create_task(lane()) for _ in range(self.options.get("lanes", 1))]
        stop = asyncio.gather(*lanes)
        await self._sleep(self.options["warmup"], stop)
        self.window.open()
        await self._sleep(self.options["seconds"], stop)
        answer = self.window.close()
        is_over = True
        await stop
        return answer

    @staticmethod
    async def _sleep(seconds: float, lanes: asyncio.Future[list[None]]) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(lanes), seconds)  # a lane that fails ends the run

    # ---- modes

    async def publish(self) -> Answer:
        """``messages`` to each of ``topics``, then the end; ``aborted`` of 100 abort, ``open``: one stays open."""
        producers = await self.producers(self.options.get("topics", 1))
        aborted: int = self.options.get("aborted", 0)
        payload, count = self.payload, self.messages
        bystander = None
        if self.options.get("open"):
            bystander = await self.begin()
            await producers[0].send(payload, txn=bystander)

        async def plain(_number: int) -> int:
            for producer in producers[:-1]:
                for _ in range(count):
                    producer.send_nowait(payload)
            last = producers[-1]
            for _ in range(count - 1):
                last.send_nowait(payload)
            since = time.perf_counter()
            await last.send(payload)
            self.window.ended(since)
            return count * len(producers)

        async def in_transaction(number: int) -> int:
            txn = await self.begin()
            for producer in producers:
                for _ in range(count):
                    producer.send_nowait(payload, txn=txn)
            await self.end(txn, commit=number % 100 >= aborted)
            return count * len(producers)

        answer = await self.put(in_transaction if self.in_transaction else plain)
        if bystander is not None:
            await bystander.commit()
        return answer

    async def process(self) -> Answer:
        """Consume ``messages``, produce as many, acknowledge in the same transaction (or after the receipts)."""
        source = f"{self.options['topic']}-source"
        feeder = await self.client.create_producer(
            source, max_pending_messages=PENDING_MESSAGES_MAX, batching_enabled=self.options.get("fed_batched", False)
        )
        (producer,) = await self.producers(1)
        consumers: list[Consumer[bytes]] = []
        lanes: int = self.options.get("lanes", 1)
        for _ in range(lanes):
            consumer = await self.client.subscribe(
                source,
                "work",
                consumer_type=ConsumerType[self.options["type"]],
                initial_position=InitialPosition.Earliest,
                batch_index_ack_enabled=True,
                ack_receipt_enabled=True,  # those of a transaction have one
            )
            consumers.append(consumer)
        free = list(consumers)
        count = self.messages
        taken = 0
        has_taken = asyncio.Event()

        async def feed() -> None:
            """The source always holds some messages more than were taken."""
            fed = 0
            while True:
                for _ in range(FED_AT_ONCE):
                    feeder.send_nowait(self.payload)
                fed += FED_AT_ONCE
                await feeder.flush()
                while fed - taken > FED_AHEAD:
                    has_taken.clear()
                    await has_taken.wait()

        async def group(_number: int) -> int:
            nonlocal taken
            consumer = free.pop()
            txn = await self.begin() if self.in_transaction else None
            messages = [await consumer.receive(RECEIVE_LIMIT_MS) for _ in range(count)]
            for message in messages[:-1]:
                producer.send_nowait(message.data(), txn=txn)
            if txn is None:
                since = time.perf_counter()
                await producer.send(messages[-1].data())
                await consumer.acknowledge(messages)
                self.window.ended(since)
            else:
                producer.send_nowait(messages[-1].data(), txn=txn)
                await consumer.acknowledge(messages, txn=txn)
                await self.end(txn)
            free.append(consumer)
            taken += count
            has_taken.set()
            return count

        feeding = asyncio.create_task(feed())
        try:
            return await self.put(group)
        finally:
            feeding.cancel()

    async def dispatch(self) -> Answer:
        """A topic with ``backlog`` messages beside ``aborted`` transactions is read by one consumer, and counted."""
        (producer,) = await self.producers(1)
        aborted: int = self.options["aborted"]
        backlog: int = self.options["backlog"]

        async def one() -> None:
            txn = await self.begin()
            producer.send_nowait(b"aborted", txn=txn)
            await txn.abort()

        put = ended = 0
        while put < backlog:
            step = min(FED_AT_ONCE, backlog - put)
            for _ in range(step):
                producer.send_nowait(self.payload)
            await producer.flush()
            put += step
            due = aborted * put // backlog
            await asyncio.gather(*(one() for _ in range(due - ended)))
            ended = due
        consumer = await self.client.subscribe(self.topic(0), "reads", initial_position=InitialPosition.Earliest)
        self.window.open()
        left = backlog
        while left:
            for message in await consumer.batch_receive():
                if message.data() != self.payload:
                    raise Wrong(f"received what was aborted: {message.data()[:20]!r}")
                left -= 1
                self.window.add(1)
        return self.window.close()


async def run(options: Options) -> Answer:
    """Of the mode."""
    async with connect(options["url"]) as client:
        answer: Answer = await getattr(Load(client, options), options["mode"])()
        return answer


def on_loop(options: Options) -> Answer:
    """The same, on the loop that the options name."""
    if options.get("loop") == "uvloop":
        import uvloop

        return uvloop.run(run(options))
    return asyncio.run(run(options))


if __name__ == "__main__":
    sys.exit(tell(on_loop))

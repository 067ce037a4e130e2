"""Entries on their way: the task's thread encodes, the loop's thread sends, a bounded queue lies between them.

The first error ends it: what is put afterwards raises it, and :meth:`EntryPump.finish` does. A receipt is waited for
by :meth:`EntryPump.finish` alone.

No entry has a timeout of its own: one that was given up while those behind it were still sent would leave a hole, and
whoever asks the broker for the last sequence id would take it for stored. The task as a whole gives up, when no receipt
has come for some time, and its producers are closed with all that waits in them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from geminga.client import (
    EntryProducer,
    MemoryBufferIsFull,
    MessageId,
    MessageTooBig,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
    Transaction,
)
from geminga.runtime import again, next_turn
from geminga.runtime.loop_thread import HandOver
from geminga.spark.process.clients import ClientSession
from geminga.spark.sink.producers import of_topic
from geminga.spark.sink_rules.entries import Entry
from geminga.spark.sink_rules.errors import SinkError

#: Entries that wait for the loop; one more makes the task wait.
WAITING_ENTRIES_MAX: Final = 32
#: Entries that the loop sends before it looks after its connections again.
_TURN: Final = 8


class EntryPump:
    """One task's entries, for any number of producers."""

    __slots__ = ("_error", "_hand_over", "_session", "_stall_ms", "duplicates", "entries", "txn")

    def __init__(self, session: ClientSession, stall_ms: int) -> None:
        """``stall_ms``: a time without any receipt that ends it with Timeout; 0: none."""
        self._session = session
        self._stall_ms = stall_ms
        self._hand_over = HandOver[tuple[EntryProducer[bytes], Entry]](session.thread, self._take, WAITING_ENTRIES_MAX)
        self._error: PulsarException | SinkError | None = None
        #: Entries that have their receipt, and those among them that the broker had already.
        self.entries = 0
        self.duplicates = 0
        #: What entries are sent in; None: nothing.
        self.txn: Transaction | None = None

    def put(self, producer: EntryProducer[bytes], entry: Entry) -> None:
        """From the task's thread: send it soon; waits while too many wait. Raises the first error so far."""
        if self._error is not None:
            raise again(self._error)
        self._hand_over.put((producer, entry))

    def finish(self, producers: Iterable[EntryProducer[bytes]]) -> None:
        """Wait until every entry has its receipt; raises the first error."""
        waited_for = list(producers)

        async def finish() -> None:
            await self._hand_over.empty()
            for producer in waited_for:
                try:
                    await self._while_receipts_come(producer, producer.flush)
                except PulsarException as error:
                    raise of_topic(error, producer.topic()) from error

        self._session.run(finish)
        if self._error is not None:
            raise again(self._error)

    def close(self) -> None:
        """The task is over, whatever became of it."""
        self._hand_over.close()

    async def _while_receipts_come(self, producer: EntryProducer[bytes], wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for as long as receipts come; raises Timeout."""
        if self._error is not None:
            return  # nothing more is waited for: the producers are going to be closed
        while True:
            before = self.entries
            try:
                async with asyncio.timeout(self._stall_ms / 1000 if self._stall_ms else None):
                    await wait()
                return
            except TimeoutError:
                if self.entries == before:
                    raise Timeout(
                        f"{producer.topic()}: no receipt within {self._stall_ms} ms (pulsar.producer.sendTimeoutMs)"
                    ) from None

    def _heard(self, topic: str, error: PulsarException | None, message_id: MessageId | None) -> None:
        if error is not None:
            self._error = self._error or of_topic(error, topic)
        else:
            self.entries += 1
            self.duplicates += message_id is not None and message_id.ledger_id() < 0

    async def _take(self, items: deque[tuple[EntryProducer[bytes], Entry]]) -> None:
        for _ in range(min(len(items), _TURN)):
            producer, entry = items[0]
            if self._error is None:
                try:
                    producer.send_encoded(entry, partial(self._heard, producer.topic()), txn=self.txn)
                except (ProducerQueueIsFull, MemoryBufferIsFull):
                    try:
                        await self._while_receipts_come(producer, producer.drain)
                    except PulsarException as error:
                        self._error = of_topic(error, producer.topic())
                    return
                except MessageTooBig as error:
                    self._error = SinkError(
                        f"{producer.topic()}: a row can not be sent: {error}. pulsar.producer.chunkingEnabled=true "
                        "sends large values in several parts; key and properties of a row must fit into one"
                    )
                except PulsarException as error:
                    self._error = of_topic(error, producer.topic())
            items.popleft()
        await next_turn()

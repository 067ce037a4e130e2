"""The producer of one topic or partition: its life on the broker; what it sends is :mod:`.sending`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

from geminga.client._api.errors import (
    AlreadyClosed,
    NotAllowedError,
    NotConnected,
    ProducerFenced,
    PulsarException,
    TopicTerminated,
    as_client_error,
)
from geminga.client._api.opening import Closable
from geminga.client._api.options import ProducerOptions
from geminga.client._producing import requests
from geminga.client._producing.messages import MessageBuilder
from geminga.client._producing.registration import Registration
from geminga.client._producing.sending import Sending
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.handlers import ServiceUrl
from geminga.client._transport.link import Link
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.producer_rules.producer_state import OPEN, State
from geminga.runtime import Raised, again, attempt, get_logger, spawn

T = TypeVar("T")
_log = get_logger(__name__)


def _refuse(failure: PulsarException | None, text: str) -> NoReturn:
    """No batch is opened any more."""
    raise failure or AlreadyClosed(text)


def warn_of_unheard(topic: str, error: PulsarException | None) -> None:
    """A producer was closed: nobody may flush it any more, which raised the first error of what was sent without a
    callback."""
    if error is not None:
        _log.warning("producer of %s was closed; of what was sent without a callback nobody heard: %s", topic, error)


class TopicProducer(Sending[T]):
    """See the module's docstring."""

    __slots__ = (
        "_closing",
        "_cluster",
        "_ends_with_refusal",
        "_link",
        "_moves",
        "_on_closed",
        "_producer_id",
        "_registration",
    )

    def __init__(
        self,
        cluster: Cluster,
        memory: MemoryLimit,
        topic: str,
        options: ProducerOptions,
        builder: MessageBuilder[T],
        *,
        producer_id: int,
        partition: int = -1,
        on_closed: Callable[[Closable], None],
    ) -> None:
        """``memory``: what all producers of the client may hold; ``on_closed`` hears of the end."""
        super().__init__(
            cluster.runtime.clock,
            cluster.place,
            memory,
            topic,
            options,
            builder,
            producer_id=producer_id,
            partition=partition,
        )
        self._cluster = cluster
        self._on_closed = on_closed
        self._producer_id = producer_id
        self._registration = Registration(
            topic,
            producer_id,
            options,
            is_encrypted=builder.encrypt is not None,
            schema=builder.schema,
            timeout_s=cluster.timeout_s,
        )
        self._link = Link(cluster, topic, "producer", attach=self._attach, on_failed=partial(self._end, State.FAILED))
        #: Of the client to other clusters, before what is in the buffer was written.
        self._moves = self._link.moves
        self._closing: asyncio.Task[None] | None = None
        self._ends_with_refusal = False

    # ---- the connection's events

    async def _attach(self, connection: ClientConnection) -> None:
        """Say PRODUCER on ``connection``; afterwards everything pending is written again, in order."""
        answer = await self._registration.make(connection, self, self._name)
        if self._state not in OPEN:
            connection.listeners.unregister_producer(self._producer_id)
            raise AlreadyClosed(f"producer of {self._topic} was closed")
        self._name = answer.producer_name
        self._frames.connected(answer.producer_name, connection.max_message_size, answer.schema_version)
        if self._state is State.NEW:
            self.batching.stored_sequence_id = answer.last_sequence_id
            self._framing.begin(answer.last_sequence_id)
        elif answer.last_sequence_id < 0 and self._buffer.queue.was_written:
            self._unsure_resends += 1
        if self._moves != self._link.moves:
            self._moves = self._link.moves
            self._buffer.moved()
        self._link.connection = connection
        self._state = State.READY
        self._buffer.connected(connection)
        for message, callback in self._early.take():
            sent = attempt(self._send, message, callback, is_let_in=True)
            if isinstance(sent, Raised):
                self._early.refuse(message, callback, as_client_error(sent.error, "sending"))
            elif message.txn is not None:
                message.txn.settle(None)

    def on_receipt(self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int) -> None:
        """A frame was stored."""
        self._buffer.receipt(sequence_id, ledger_id, entry_id)
        if self._is_batching and not self._buffer.queue.in_flight:
            self.batching.close_awaited()

    def on_send_error(self, sequence_id: int, error: PulsarException) -> None:
        """A frame was refused."""
        is_refused = isinstance(error, NotAllowedError)
        if isinstance(error, TopicTerminated | ProducerFenced) or (is_refused and self._ends_with_refusal):
            self._end(State.FAILED, error)
        elif is_refused:
            self._buffer.refused(sequence_id, error)
        else:
            # Damaged on the way, or what the broker can not do now. To keep the order, everything from here on is
            # sent again over a new connection, until the send timeout.
            _log.warning("producer %s of %s: %s; sending again", self._name, self._topic, error)
            self._buffer.refused_for_now(error)
            connection = self._link.connection
            if connection is not None:
                connection.close(NotConnected(f"sending again after: {error}"))

    def end_with_refusal(self) -> None:
        """See :meth:`EntryProducer.end_with_refusal`."""
        self._ends_with_refusal = True

    def on_closed_by_broker(self, assigned: str | ServiceUrl) -> None:
        """The topic moves, or is unloaded."""
        if isinstance(assigned, ServiceUrl):
            self._link.moved(assigned)
            self._buffer.moved()
            assigned = ""
        self._disconnected(assigned)

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone."""
        self._disconnected("")

    def on_writable(self) -> None:
        """The transport takes data again."""
        self._buffer.write()

    def _disconnected(self, assigned_url: str) -> None:
        if self._state is State.READY:
            self._state = State.CONNECTING
            self._buffer.disconnected()
            self._link.lost(assigned_url)
        elif self._state is State.CLOSING:
            self._link.connection = None
            self._end(State.CLOSED, AlreadyClosed(f"producer {self._name}: the connection was lost while closing"))
        else:
            self._registration.lost()

    # ---- life

    async def connect(self) -> None:
        """The first connection; raises what went wrong."""
        try:
            await self._link.connect()
        except BaseException as error:
            failure: PulsarException = AlreadyClosed("creating it was given up")
            if isinstance(error, Exception):
                failure = as_client_error(error, f"connecting the producer of {self._topic}")
            self._end(State.FAILED, again(failure))
            del failure  # see runtime's value_of
            raise

    def connect_soon(self) -> None:
        """Connect in the background; what is sent meanwhile waits, and fails if connecting fails."""
        if self._connecting is None and self._state is State.NEW:
            self._connecting = spawn(self._connect_quietly(), name=f"connect producer of {self._topic}")

    async def _connect_quietly(self) -> None:
        try:
            await self.connect()
        except PulsarException as error:
            _log.warning("producer of %s: %s", self._topic, error)

    async def close(self) -> None:
        """See :meth:`Producer.close`."""
        self._place.check()
        if self._state in OPEN and self._closing is None:
            self._closing = spawn(self._close(), name=f"close producer of {self._topic}")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._state is State.NEW and self._connecting is not None and len(self._early):
            # What was sent before the first connection waits for it, as flush does.
            await asyncio.wait([self._connecting], timeout=self._cluster.timeout_s)
        self.batching.close()
        connection = self._link.connection
        try:
            if self._state is State.READY and connection is not None:
                self._state = State.CLOSING
                async with asyncio.timeout(self._cluster.timeout_s):
                    await self._buffer.wait_for_receipts()
                    if self._link.connection is not None:
                        await self._close_on_broker(connection)
        except (TimeoutError, PulsarException) as error:
            _log.info("closing producer %s of %s: %s", self._name, self._topic, error)
        finally:
            text = f"producer {self._name} of {self._topic} was closed before the receipt came: it may be stored"
            self._end(State.CLOSED, AlreadyClosed(text))
            warn_of_unheard(self._topic, self._buffer.unheard_error)

    async def _close_on_broker(self, connection: ClientConnection) -> None:
        request_id = connection.next_request_id()
        connection.listeners.unregister_producer(self._producer_id)
        self._link.connection = None
        timeout_s = self._cluster.timeout_s
        await connection.request(requests.close(self._producer_id, request_id), request_id, timeout_s)

    def _end(self, state: State, error: PulsarException) -> None:
        """Closed or failed: everything pending fails with ``error``."""
        if self._state in (State.CLOSED, State.FAILED):
            return
        connection = self._link.connection
        if connection is not None and not connection.is_closed:
            connection.listeners.unregister_producer(self._producer_id)
            connection.send_unanswered(requests.close(self._producer_id, connection.next_request_id()))
        self._state = state
        self._failure = error if state is State.FAILED else None
        self._link.close()
        if self._connecting is not None:
            self._connecting.cancel()
        self.batching.stop(partial(_refuse, self._failure, f"producer {self._name} of {self._topic} is closed"))
        self._on_closed(self)
        self._early.fail(error)
        self._buffer.disconnected()
        self.batching.close()
        self._buffer.fail_all(error)

    # ---- what it is

    def topic(self) -> str:
        """See :meth:`Producer.topic`."""
        return self._topic

    def producer_name(self) -> str:
        """See :meth:`Producer.producer_name`."""
        return self._name

    def is_connected(self) -> bool:
        """See :meth:`Producer.is_connected`."""
        return self._state is State.READY and self._link.connection is not None

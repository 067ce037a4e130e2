"""Traces for OpenTelemetry: spans of REST requests, publishes, dispatches, acknowledgments, transactions, ledgers.

Loaded where ``OTEL_TRACES_EXPORTER`` asks for it, and put around what a broker is made of: without it nothing of this
is there. ``docs/formats/log.md`` lists the spans. The SDK reads all other ``OTEL_`` variables itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context, use_span

from geminga.app.servers.telemetry.traced_consumer import context_of, of_topic, traced_consumers
from geminga.broker.connection.back_pressure import LONG_COMMAND_BYTES
from geminga.broker.handlers.subscription import handle_ack_bytes
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.model.bookie_port import (
    AddDone,
    Availability,
    AvailabilityListener,
    Bookie,
    BookiePool,
    EntryData,
    FenceDone,
    InfoDone,
    LacDone,
    ListDone,
    PoolListener,
    ReadDone,
    WriteLacDone,
)
from geminga.model.errors import GemingaError, StorageError
from geminga.model.txn_id import TxnId
from geminga.runtime.log import trace_id
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.hot import decode_ack
from geminga.wire.pulsar.metadata import peek_metadata, texts_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from geminga.broker.connection.connection import Connection
    from geminga.broker.topic.publish import PublishBatch
    from geminga.managed_ledger import AppendResult

#: Of the threads that wait for the exporter when the process stops.
LANE: Final = "telemetry"
#: Transactions of one topic that are followed at once.
TRANSACTIONS_MAX: Final = 1000


class _LogIds(RandomIdGenerator):
    """A trace that begins with a request has the id that the request has in the log."""

    def generate_trace_id(self) -> int:
        trace = trace_id.get()
        return int(trace, 16) if trace else super().generate_trace_id()


class Telemetry:
    """What makes the spans, and sends them away."""

    def __init__(self, version: str) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.version": version}), id_generator=_LogIds())
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer: Tracer = self._provider.get_tracer("geminga", version)
        self.parts: Sequence[type[TopicPart]] = (publishes_part(self.tracer),)
        self.acknowledge = acknowledges(self.tracer)
        self.consumer_kind = traced_consumers(self.tracer)

    def close(self) -> None:
        """Send what is there, and end; blocks, and never raises."""
        self._provider.shutdown()

    def application(self, make: Callable[[], ASGIApp]) -> Callable[[], ASGIApp]:
        """The REST application with a span for each request."""
        return lambda: _TracedApplication(make(), self.tracer)

    def pool(self, pool: BookiePool) -> BookiePool:
        """Bookies with a span for each add and read."""
        return _TracedPool(pool, self.tracer)


def acknowledges(tracer: Tracer) -> Callable[[Connection, bytes], None]:
    """The handler of ACK with a span for each.

    The client asked for an answer: until it is given, which says that all of it is durable, or what went wrong. It did
    not: until it is taken, for nobody waits until it is durable, and to wait here would have it stored earlier.
    """

    def traced(connection: Connection, raw: bytes) -> None:
        is_asked, consumer_id, count = _of_ack(raw)
        consumer = connection.members.consumers.get(consumer_id)
        attributes = of_topic("settle", "" if consumer is None else str(consumer.subscription.topic.name))
        attributes["messaging.pulsar.acknowledged"] = "durable" if is_asked else "taken"
        if consumer is not None:
            attributes["messaging.consumer.group.name"] = consumer.subscription.name
        if count:
            attributes["messaging.batch.message_count"] = count
        span = tracer.start_span("acknowledge", kind=SpanKind.SERVER, attributes=attributes)
        with use_span(span, end_on_exit=not is_asked):
            handle_ack_bytes(connection, raw, partial(_ended, span) if is_asked else None)

    return traced


def _of_ack(raw: bytes) -> tuple[bool, int, int]:
    """Whether an ACK asks for an answer, its consumer's id, how many message ids it has (0: not counted)."""
    fields = decode_ack(raw)
    if fields is not None:
        return fields.request_id is not None, fields.consumer_id, len(fields.ids)
    if len(raw) > LONG_COMMAND_BYTES:
        # Cut up in several turns where it is handled, which here would be one long one.
        return False, -1, 0
    ack = decode_command(raw).ack
    return ack.HasField("request_id"), ack.consumer_id, len(ack.message_id)


def _ended(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


class _TracedApplication:
    """An ASGI application around another one."""

    def __init__(self, application: ASGIApp, tracer: Tracer) -> None:
        self._application = application
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, as ASGI has it."""
        context = context_of({name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]})
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
        with self._tracer.start_as_current_span(
            scope["method"], context, kind=SpanKind.SERVER, attributes=attributes
        ) as span:

            async def send_on(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            await self._application(scope, receive, send_on)


class TracedPublishes(TopicPart):
    """A part of a topic: spans of what is published there, and of transactions that publish there.

    A message's own ``traceparent``, among its properties, is the parent of its span.
    """

    __slots__ = ("_topic", "_transactions")
    name = "traces"
    tracer: ClassVar[Tracer]

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self._transactions: dict[tuple[int, int], Span] = {}

    def admit(self, batch: PublishBatch) -> Sequence[PublishBatch]:
        """The first message of a transaction here begins its span."""
        key = batch.transaction
        if key is not None and key not in self._transactions and len(self._transactions) < TRANSACTIONS_MAX:
            attributes = of_topic("process", str(self._topic.name))
            attributes["messaging.pulsar.transaction"] = str(TxnId(*key))
            self._transactions[key] = self.tracer.start_span("transaction", Context(), attributes=attributes)
        return (batch,)

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        """A span for each entry, from its arrival on."""
        end_ns = time.time_ns()
        age_s = self._topic.services.runtime.clock.monotonic() - batch.since_s
        start_ns = end_ns - int(age_s * 1e9)
        for number in range(batch.answered_count - result.count, batch.answered_count):
            self._publish(batch.entries[number], batch, start_ns, end_ns, None)

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """One span for what could not be stored."""
        end_ns = time.time_ns()
        age_s = self._topic.services.runtime.clock.monotonic() - batch.since_s
        self._publish(batch.entries[0], batch, end_ns - int(age_s * 1e9), end_ns, error)

    def _publish(
        self, entry: bytes, batch: PublishBatch, start_ns: int, end_ns: int, error: GemingaError | None
    ) -> None:
        metadata = peek_metadata(entry)
        transaction = None if batch.transaction is None else self._transactions.get(batch.transaction)
        context = Context() if metadata is None else context_of(texts_of(metadata.properties))
        if transaction is not None and not context:
            context = set_span_in_context(transaction, context)
        attributes = of_topic("send", str(self._topic.name))
        attributes["messaging.message.envelope.size"] = len(entry)
        attributes["messaging.pulsar.producer"] = batch.producer.name
        span = self.tracer.start_span(
            "publish", context, kind=SpanKind.SERVER, attributes=attributes, start_time=start_ns
        )
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end(end_ns)

    def transaction_ended(self, txn_id: TxnId, *, is_committed: bool) -> None:
        """Its marker is stored: so ends its span."""
        span = self._transactions.pop((txn_id[0], txn_id[1]), None)
        if span is not None:
            span.set_attribute("messaging.pulsar.transaction.outcome", "commit" if is_committed else "abort")
            span.end()

    def drop(self) -> None:
        """What is open ends elsewhere."""
        for span in self._transactions.values():
            span.end()
        self._transactions.clear()

    async def close(self) -> None:
        """The same."""
        self.drop()


def publishes_part(tracer: Tracer) -> type[TopicPart]:
    """The kind of part whose spans ``tracer`` makes: topics make parts of what they are about alone."""
    return type("TracedPublishes", (TracedPublishes,), {"__slots__": (), "tracer": tracer})


class _TracedPool:
    """A pool around another one."""

    def __init__(self, pool: BookiePool, tracer: Tracer) -> None:
        self._pool = pool
        self._tracer = tracer

    def available(self) -> Sequence[str]:
        """See ``BookiePool``."""
        return self._pool.available()

    def read_only(self) -> Sequence[str]:
        """See ``BookiePool``."""
        return self._pool.read_only()

    def get(self, bookie_id: str) -> Bookie:
        """See ``BookiePool``."""
        return _TracedBookie(self._pool.get(bookie_id), bookie_id, self._tracer)

    def watch(self, listener: PoolListener) -> None:
        """See ``BookiePool``."""
        self._pool.watch(listener)


class _TracedBookie:
    """A bookie around another one: adds and reads have spans, the rest is passed on."""

    def __init__(self, bookie: Bookie, bookie_id: str, tracer: Tracer) -> None:
        self._bookie = bookie
        self._id = bookie_id
        self._tracer = tracer

    def _begin(self, name: str, ledger_id: int, count: int) -> Span:
        attributes: dict[str, str | int] = {
            "bookkeeper.bookie": self._id,
            "bookkeeper.ledger.id": ledger_id,
            "bookkeeper.entries": count,
        }
        return self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)

    def add_entries(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """One span, until all of them are answered."""
        span = self._begin("ledger add", ledger_id, len(entry_ids))
        missing = len(entry_ids)

        def answered(ids: Sequence[int], error: StorageError | None) -> None:
            nonlocal missing
            missing -= len(ids)
            if error is not None:
                span.set_status(Status(StatusCode.ERROR, str(error)))
            if missing <= 0:
                span.end()
            done(ids, error)

        self._bookie.add_entries(ledger_id, entry_ids, entries, master_key=master_key, recovery=recovery, done=answered)

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        """One span for all of them."""
        span = self._begin("ledger read", ledger_id, len(entry_ids))

        def have(results: Sequence[EntryData | StorageError]) -> None:
            error = next((result for result in results if isinstance(result, StorageError)), None)
            _ended(span, error)
            done(results)

        self._bookie.read_entries(ledger_id, entry_ids, have, bytes_max=bytes_max)

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See ``Bookie``."""
        self._bookie.fence(ledger_id, master_key=master_key, done=done)

    def fence_and_read_lac(self, ledger_id: int, *, master_key: bytes, done: LacDone) -> None:
        """See ``Bookie``."""
        self._bookie.fence_and_read_lac(ledger_id, master_key=master_key, done=done)

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See ``Bookie``."""
        self._bookie.readmit(ledger_id, master_key=master_key, done=done)

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """See ``Bookie``."""
        self._bookie.read_lac(ledger_id, done=done)

    def write_lac(self, ledger_id: int, lac: bytes, *, master_key: bytes, done: WriteLacDone) -> None:
        """See ``Bookie``."""
        self._bookie.write_lac(ledger_id, lac, master_key=master_key, done=done)

    def list_entries(self, ledger_id: int, *, done: ListDone) -> None:
        """See ``Bookie``."""
        self._bookie.list_entries(ledger_id, done=done)

    @property
    def is_writable(self) -> bool:
        """See ``Bookie``."""
        return self._bookie.is_writable

    @property
    def availability(self) -> Availability:
        """See ``Bookie``."""
        return self._bookie.availability

    def watch(self, listener: AvailabilityListener) -> None:
        """See ``Bookie``."""
        self._bookie.watch(listener)

    def read_info(self, *, done: InfoDone) -> None:
        """See ``Bookie``."""
        self._bookie.read_info(done=done)

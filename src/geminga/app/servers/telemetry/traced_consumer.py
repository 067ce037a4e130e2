"""A consumer with a span for each entry that it is sent.

A module of its own, which is compiled where ``Consumer`` is: who extends a compiled class has to be. So what makes the
spans is an attribute, and no class is made for each tracer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from geminga.broker.subscription.consumer import Consumer
from geminga.wire.pulsar.metadata import peek_metadata, texts_of

if TYPE_CHECKING:
    from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
    from geminga.broker.core.dispatch.shared import Candidate
    from geminga.broker.subscription.consumer import ConsumerConnection, ConsumerSubscription
    from geminga.wire._generated import pulsar_api_pb2 as pb

_CONTEXT: Final = TraceContextTextMapPropagator()


class TracedConsumer(Consumer):
    """See the module; the parent of a span is that of the message's ``publish``."""

    __slots__ = ("tracer",)
    tracer: Tracer

    def send(self, entries: Sequence[Candidate], *, redeliveries: RedeliveryTracker | None, now_ms: int) -> None:
        """From here until they are with the connection; how long a client takes to read them is not in it."""
        spans = [self._span(entry, redeliveries) for entry in entries]
        super().send(entries, redeliveries=redeliveries, now_ms=now_ms)
        for span in spans:
            span.end()

    def _span(self, entry: Candidate, redeliveries: RedeliveryTracker | None) -> Span:
        metadata = peek_metadata(entry.data)
        context = Context() if metadata is None else context_of(texts_of(metadata.properties))
        attributes = of_topic("receive", str(self.subscription.topic.name))
        attributes["messaging.consumer.group.name"] = self.subscription.name
        attributes["messaging.pulsar.consumer"] = self.name
        attributes["messaging.message.envelope.size"] = len(entry.data)
        attributes["messaging.batch.message_count"] = entry.message_count
        if redeliveries:
            attributes["messaging.pulsar.redelivery_count"] = redeliveries.count(entry.position)
        return self.tracer.start_span("dispatch", context, kind=SpanKind.PRODUCER, attributes=attributes)


def traced_consumers(tracer: Tracer) -> Callable[..., Consumer]:
    """Makes consumers whose spans ``tracer`` makes, of what a :class:`Consumer` is made of."""

    def make(
        connection: ConsumerConnection,
        subscription: ConsumerSubscription,
        request: pb.CommandSubscribe,
        *,
        name: str,
        partition: int,
        now_ms: int,
    ) -> Consumer:
        consumer = TracedConsumer(connection, subscription, request, name=name, partition=partition, now_ms=now_ms)
        consumer.tracer = tracer
        return consumer

    return make


def of_topic(operation: str, topic: str) -> dict[str, str | int]:
    """OpenTelemetry's names of a messaging system's attributes."""
    return {
        "messaging.system": "pulsar",
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def context_of(texts: Mapping[str, str]) -> Context:
    """That of a ``traceparent`` among them; an empty one."""
    return _CONTEXT.extract(texts, Context())

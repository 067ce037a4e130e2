"""Spans of two brokers in one process: each has those of its own messages, and makes no class for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from geminga.app.servers.telemetry.spans import acknowledges, publishes_part
from geminga.app.servers.telemetry.traced_consumer import TracedConsumer, traced_consumers
from geminga.broker.connection.connection import Connection
from geminga.broker.subscription.consumer import Consumer
from geminga.broker.topic.parts import TopicPart
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, run_with_broker


class Spans:
    """What puts spans around a broker, which keeps them here."""

    def __init__(self) -> None:
        self.kept = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.kept))
        tracer = provider.get_tracer("a test")
        self.parts: Sequence[type[TopicPart]] = (publishes_part(tracer),)
        self.acknowledge: Callable[[Connection, bytes], None] = acknowledges(tracer)
        self.consumer_kind: Callable[..., Consumer] = traced_consumers(tracer)

    def count(self, name: str) -> int:
        return sum(span.name == name for span in self.kept.get_finished_spans())


async def some_messages(world: BrokerWorld, count: int) -> set[type[Consumer]]:
    """As many are published and taken; of what classes the consumers are."""
    client = await world.publisher()
    await client.subscribe(subscription="s", subType=pb.CommandSubscribe.Shared)
    for sequence_id in range(count):
        await client.publish(sequence_id)
        await client.expect_with_payload(pb.BaseCommand.MESSAGE)
    (topic,) = world.broker.topics.values()
    return {type(consumer) for one in topic.subscriptions.values() for consumer in one.consumers}


def test_each_broker_has_the_spans_of_its_own_messages() -> None:
    few, many = Spans(), Spans()

    async def both(world: BrokerWorld) -> set[type[Consumer]]:
        return await some_messages(world, 1 if world.telemetry is few else 3)

    kinds = [run_with_broker(both, telemetry=spans) for spans in (few, many)]
    assert kinds == [{TracedConsumer}, {TracedConsumer}]
    assert [(spans.count("publish"), spans.count("dispatch")) for spans in (few, many)] == [(1, 1), (3, 3)]

"""Messages wait for their schema, in order; what is asked for again meanwhile comes again."""

from __future__ import annotations

import pytest

import geminga.client as gc
from geminga.client._consuming.schema import SchemaGate
from geminga.client.schema import BytesSchema
from geminga.client.schema._base import SchemaDecoder
from geminga.runtime import wait_ms
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker
from unit.client.test_key_gate import check_six_come

TOPIC = "persistent://public/default/topic"
COVERED = (SchemaGate,)


class Slow(SchemaDecoder[bytes]):
    """Is ready a second after it was asked."""

    def __init__(self) -> None:
        super().__init__(BytesSchema(), None)
        self.has_it = False

    def is_ready(self, schema_version: bytes) -> bool:
        return self.has_it

    async def prepare(self, schema_version: bytes) -> None:
        await wait_ms(1000)
        self.has_it = True

    async def bind_consumer(self, topic: str, source: object) -> Slow:
        return self


@pytest.mark.parametrize("queue", [0, 1, 4])
@pytest.mark.parametrize("kind", [gc.ConsumerType.Exclusive, gc.ConsumerType.Shared], ids=["exclusive", "shared"])
def test_what_is_held_and_asked_for_again_comes(kind: gc.ConsumerType, queue: int) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        consumer = await client.subscribe(TOPIC, "s", schema=Slow(), receiver_queue_size=queue, consumer_type=kind)
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        for number in range(6):
            await producer.send(b"%d" % number)
        await check_six_come(consumer)

    run_with_broker(scenario)


class SlowDecoder:
    """Needs its version fetched, which fails once."""

    info = None

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def is_ready(self, schema_version: bytes) -> bool:
        return len(self.asked) >= 2

    async def prepare(self, schema_version: bytes) -> None:
        self.asked.append(schema_version)
        await wait_ms(100)
        if len(self.asked) == 1:
            raise gc.NotConnected("once")

    def decode(self, payload: bytes, *, schema_version: bytes = b"", key: bytes | None = None) -> str:
        return f"{payload.decode()} of {key!r}"


class SlowSchema:
    def __init__(self) -> None:
        self.decoder = SlowDecoder()

    async def bind_consumer(self, topic, source):
        return self.decoder


def test_messages_wait_for_their_schema_in_order() -> None:
    async def scenario(client, broker):
        async with await client.create_producer("t", batching_enabled=False) as producer:
            for payload in (b"1", b"2", b"3"):
                await producer.send(payload, partition_key="k")
        schema = SlowSchema()
        consumer = await client.subscribe("t", "s", schema=schema, initial_position=gc.InitialPosition.Earliest)
        assert [(await consumer.receive(5000)).value() for _ in range(3)] == [f"{n} of b'k'" for n in (1, 2, 3)]
        assert len(schema.decoder.asked) == 2
        assert all(isinstance(topic._intake._gate, SchemaGate) for topic in consumer.held.all())

    run_with_broker(scenario)

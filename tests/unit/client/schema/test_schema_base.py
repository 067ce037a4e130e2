"""Binding schemas to topics, and the versions a consumer fetches."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

import geminga.client as gc
from geminga import sim
from geminga.client._api.errors import NotConnected
from geminga.client.schema import _base as base
from geminga.client.schema._primitives import BytesSchema, StringSchema
from geminga.client.schema._protocol import SchemaInfo, SchemaType, VersionedSchema
from geminga.client.schema._struct import AvroSchema
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"
ONE = bytes(8)
TWO = bytes(7) + b"\1"
GONE = bytes(7) + b"\2"


@dataclasses.dataclass
class Old:
    a: int


@dataclasses.dataclass
class New:
    a: int
    b: str = "b"


class Source:
    """Gives two versions; counts the questions."""

    def __init__(self) -> None:
        self.versions = {ONE: AvroSchema(Old).info, TWO: AvroSchema(New).info}
        self.asked: list[bytes | None] = []
        self.error: NotConnected | None = None

    async def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        self.asked.append(version)
        later: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(later.set_result, None)
        await later
        if self.error is not None:
            raise self.error
        info = self.versions.get(version or TWO)
        return None if info is None else VersionedSchema(info, version or TWO)


def test_simple_schemas_need_no_version() -> None:
    async def main(world: sim.SimWorld) -> None:
        source = Source()
        encoder = await StringSchema().bind_producer("t", source)
        decoder = await StringSchema().bind_consumer("t", source)
        assert encoder.info == decoder.info == SchemaInfo("STRING", SchemaType.STRING)
        assert not encoder.sets_key
        assert decoder.is_ready(TWO)
        await decoder.prepare(TWO)
        assert decoder.decode(encoder.encode("x"), schema_version=TWO) == "x"
        assert source.asked == []

    sim.run(main)


def test_bytes_tell_the_broker_nothing() -> None:
    async def main(world: sim.SimWorld) -> None:
        assert (await BytesSchema().bind_producer("t", Source())).info is None
        assert (await BytesSchema().bind_consumer("t", Source())).info is None

    sim.run(main)


def test_versions_are_fetched_once_and_shared() -> None:
    async def main(world: sim.SimWorld) -> None:
        source = Source()
        decoder = await AvroSchema(New).bind_consumer("t", source)
        assert decoder.is_ready(b"")
        assert not decoder.is_ready(ONE)
        await asyncio.gather(*(decoder.prepare(ONE) for _ in range(3)))
        assert decoder.is_ready(ONE)
        await decoder.prepare(ONE)
        assert source.asked == [ONE]
        data = AvroSchema(Old).encode(Old(7))
        assert decoder.decode(data, schema_version=ONE) == New(7, "b")
        assert decoder.decode(AvroSchema(New).encode(New(1, "c"))) == New(1, "c")

    sim.run(main)


def test_a_version_that_does_not_exist_is_told_when_it_is_decoded() -> None:
    async def main(world: sim.SimWorld) -> None:
        decoder = await AvroSchema(New).bind_consumer("t", Source())
        with pytest.raises(base.SchemaSerializationError, match="version 2 of t was not fetched"):
            decoder.decode(b"", schema_version=GONE)
        await decoder.prepare(GONE)
        assert decoder.is_ready(GONE)
        with pytest.raises(base.SchemaSerializationError, match="version 2 of t does not exist"):
            decoder.decode(b"", schema_version=GONE)

    sim.run(main)


def test_an_error_reaches_all_who_wait_and_the_next_try_asks_again() -> None:
    async def main(world: sim.SimWorld) -> None:
        source = Source()
        source.error = NotConnected("lost")
        decoder = await AvroSchema(New).bind_consumer("t", source)
        results = await asyncio.gather(*(decoder.prepare(ONE) for _ in range(2)), return_exceptions=True)
        assert all(isinstance(result, NotConnected) for result in results)
        with pytest.raises(base.SchemaSerializationError, match="version 0 of t was not fetched: NotConnected: lost"):
            decoder.decode(b"", schema_version=ONE)
        source.error = None
        await decoder.prepare(ONE)
        assert decoder.is_ready(ONE)
        assert source.asked == [ONE, ONE]

    sim.run(main)


class SilentSource(Source):
    """Answers nothing the first time."""

    async def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        found = await super().get_schema(topic, version)
        if len(self.asked) == 1:
            await asyncio.get_running_loop().create_future()
        return found


def test_who_waits_for_another_s_fetch_that_is_cut_off_asks_again() -> None:
    async def main(world: sim.SimWorld) -> None:
        source = SilentSource()
        decoder = await AvroSchema(New).bind_consumer("t", source)
        first, second = (asyncio.ensure_future(decoder.prepare(ONE)) for _ in range(2))
        await asyncio.wait([first], timeout=0.1)
        first.cancel()
        await second
        assert source.asked == [ONE, ONE]
        assert decoder.is_ready(ONE)

    sim.run(main)


def test_the_versions_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "VERSIONS_MAX", 2)

    async def main(world: sim.SimWorld) -> None:
        decoder = await AvroSchema(New).bind_consumer("t", Source())
        for version in (ONE, TWO, GONE):
            await decoder.prepare(version)
        assert [decoder.is_ready(version) for version in (ONE, TWO, GONE)] == [False, True, True]

    sim.run(main)


def test_what_is_kept_of_versions_is_bounded_however_long_their_names_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand in each message, and who sends it may write a megabyte there."""
    monkeypatch.setattr(base, "VERSIONS_BYTES_MAX", 1000)

    async def main(world: sim.SimWorld) -> None:
        decoder = await AvroSchema(New).bind_consumer("t", Source())
        names = [bytes([number]) * 400 for number in range(5)]
        for name in names:
            await decoder.prepare(name)
        assert [decoder.is_ready(name) for name in names] == [False, False, False, True, True]
        await decoder.prepare(bytes(5000))
        assert [decoder.is_ready(name) for name in (*names, bytes(5000))] == [False] * 5 + [True]
        await decoder.prepare(names[0])
        assert [decoder.is_ready(name) for name in (names[0], bytes(5000))] == [True, False]
        with pytest.raises(base.SchemaSerializationError, match=r"version (00){32}\.\.\. \(5000 bytes\) of t was not"):
            decoder.decode(b"", schema_version=bytes(5000))

    sim.run(main)


def test_a_message_that_names_no_version_at_all_holds_up_nobody() -> None:
    """Its sender wrote three bytes where a version has eight: to ask for that is an error, each time."""

    async def scenario(client: gc.Client, on_node: BrokerOnNode) -> None:
        consumer = await client.subscribe(TOPIC, "s", schema=AvroSchema(New))
        topic = next(iter(on_node.broker.registry.loaded.values()))
        payload = AvroSchema(New).encode(New(7))
        for version in (b"abc", b""):
            metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, schema_version=version)
            topic.ledger.append([encode_entry(metadata, payload)], lambda _: None)
        first, second = await consumer.receive(5000), await consumer.receive(5000)
        with pytest.raises(base.SchemaSerializationError, match=r"version 616263 of .* does not exist"):
            first.value()
        assert second.value() == New(7)
        assert await client.get_schema(TOPIC, b"abc") is None

    run_with_broker(scenario)

"""Schemas between our client and the official one, in both directions, and what only ours can do, over real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pulsar
import pulsar.schema as theirs
import pydantic
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

import geminga.client as gc
import geminga.client.schema as ours

pytestmark = pytest.mark.integration

T = TypeVar("T")
RECEIVE_MS = 10_000
NOW = dt.datetime(2024, 2, 29, 12, 30, 1, 123000, tzinfo=dt.UTC)


class Color(enum.Enum):
    red = 1
    blue = 2


def records_of(client: Any) -> tuple[Any, Any]:
    """A record with fields of all kinds, of the official client or of ours, and the one that is nested in it.

    The official client finds a nested record by its name: all sides call it Sub.
    """

    class Sub(client.Record):
        x = client.Integer()
        tags = client.Array(client.String())

    class Full(client.Record):
        a = client.Integer(required=True)
        b = client.Boolean()
        c = client.Long()
        d = client.Double()
        s = client.String()
        raw = client.Bytes()
        color = Color
        counts = client.Map(client.Long())
        sub = Sub()
        subs = client.Array(Sub())

    return Full, Sub


TheirRecord, TheirSub = records_of(theirs)
OurRecord, OurSub = records_of(ours)


class Datas:
    @dataclasses.dataclass
    class Sub:
        x: ours.Int32 | None = None
        tags: list[str] | None = None


@dataclasses.dataclass
class Data:
    a: ours.Int32
    b: bool | None = None
    c: int | None = None
    d: float | None = None
    s: str | None = None
    raw: bytes | None = None
    color: Color | None = None
    counts: dict[str, int] | None = None
    sub: Datas.Sub | None = None
    subs: list[Datas.Sub] | None = None


class Model(pydantic.BaseModel):
    a: ours.Int32
    b: bool | None = None
    c: int | None = None
    d: float | None = None
    s: str | None = None
    raw: bytes | None = None
    color: Color | None = None
    counts: dict[str, int] | None = None
    sub: Datas.Sub | None = None
    subs: list[Datas.Sub] | None = None


def filled(record: Callable[..., T], sub: Callable[..., Any]) -> T:
    """A value with something in every field."""
    return record(
        a=1,
        b=True,
        c=1 << 40,
        d=2.5,
        s="text é",
        raw=b"raw",
        color=Color.blue,
        counts={"k": 3},
        sub=sub(x=4, tags=["t"]),
        subs=[sub(x=5, tags=[]), sub(x=6, tags=["u", "v"])],
    )


#: Name -> the official schema and value, ours.
PAIRS: dict[str, tuple[Any, Any, Any, Any]] = {
    "bytes": (theirs.BytesSchema(), b"\0\xff", ours.BytesSchema(), b"\0\xff"),
    "string": (theirs.StringSchema(), "text é", ours.StringSchema(), "text é"),
    "protobuf native": (
        theirs.ProtobufNativeSchema(FileDescriptorProto),
        FileDescriptorProto(name="n"),
        ours.ProtobufNativeSchema(FileDescriptorProto),
        FileDescriptorProto(name="n"),
    ),
}
for _kind, _theirs, _ours in (
    ("json", theirs.JsonSchema, ours.JsonSchema),
    ("avro", theirs.AvroSchema, ours.AvroSchema),
):
    _value = filled(TheirRecord, TheirSub)
    PAIRS[f"{_kind} record"] = (_theirs(TheirRecord), _value, _ours(OurRecord), filled(OurRecord, OurSub))
    PAIRS[f"{_kind} dataclass"] = (_theirs(TheirRecord), _value, _ours(Data), filled(Data, Datas.Sub))
    PAIRS[f"{_kind} pydantic"] = (_theirs(TheirRecord), _value, _ours(Model), filled(Model, Datas.Sub))


def run(url: str, main: Callable[[gc.Client], Awaitable[T]]) -> T:
    """``main`` with a client, on a loop of its own."""

    async def with_client() -> T:
        async with asyncio.timeout(60), gc.connect(url) as client:
            return await main(client)

    return asyncio.run(with_client())


async def exchange(client: gc.Client, topic: str, produced: Any, consumed: Any, *values: Any) -> list[gc.Message]:
    """What a consumer gets of what a producer sends."""
    consumer = await client.subscribe(topic, "sub", schema=consumed, initial_position=gc.InitialPosition.Earliest)
    producer = await client.create_producer(topic, schema=produced)
    for value in values:
        await producer.send(value)
    return [await consumer.receive(RECEIVE_MS) for _ in values]


@pytest.mark.parametrize("name", PAIRS)
def test_official_produces_ours_consumes(name: str, standalone, official, fresh_topic: str) -> None:
    their_schema, their_value, our_schema, our_value = PAIRS[name]
    producer = official.create_producer(fresh_topic, schema=their_schema)

    async def main(client: gc.Client) -> None:
        consumer = await client.subscribe(fresh_topic, "sub", schema=our_schema)
        producer.send(their_value)
        message = await consumer.receive(RECEIVE_MS)
        assert message.value() == our_value
        assert message.schema_version() == (b"" if name == "bytes" else bytes(8))

    run(standalone.service_url, main)


@pytest.mark.parametrize("name", PAIRS)
def test_ours_produces_official_consumes(name: str, standalone, official, fresh_topic: str) -> None:
    their_schema, their_value, our_schema, our_value = PAIRS[name]

    async def main(client: gc.Client) -> None:
        producer = await client.create_producer(fresh_topic, schema=our_schema)
        await producer.send(our_value)

    run(standalone.service_url, main)
    consumer = official.subscribe(
        fresh_topic, "sub", schema=their_schema, initial_position=pulsar.InitialPosition.Earliest
    )
    message = consumer.receive(RECEIVE_MS)
    assert message.value() == their_value
    assert message.schema_version().encode() == (b"" if name == "bytes" else bytes(8))


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_record_classes_give_the_schema_that_the_official_client_gives(kind: str) -> None:
    their_schema, _, our_schema, _ = PAIRS[f"{kind} record"]
    assert json.loads(our_schema.info.schema) == json.loads(their_schema.schema_info().schema())


def test_each_message_is_read_by_the_schema_it_was_written_with(standalone, official, fresh_topic: str) -> None:
    """Two versions on one topic, sent by the official client; a class that knows a third."""

    class First(theirs.Record):
        a = theirs.Integer(required=True)
        gone = theirs.String(required_default=True)

    class Second(theirs.Record):
        extra = theirs.Integer(default=0, required_default=True)
        a = theirs.Integer(required=True)

    @dataclasses.dataclass
    class Reader:
        a: int
        extra: int | None = -1

    for schema, value in (
        (theirs.AvroSchema(First), First(a=1, gone="x")),
        (theirs.AvroSchema(Second), Second(extra=7, a=2)),
    ):
        producer = official.create_producer(fresh_topic, schema=schema)
        producer.send(value)
        producer.close()

    async def main(client: gc.Client) -> None:
        reader = await client.create_reader(fresh_topic, gc.MessageId.earliest, schema=ours.AutoConsumeSchema())
        messages = [await reader.read_next(RECEIVE_MS) for _ in range(2)]
        assert [dict(message.value()) for message in messages] == [{"a": 1, "gone": "x"}, {"extra": 7, "a": 2}]
        assert [message.schema_version()[-1] for message in messages] == [0, 1]
        typed = await client.create_reader(fresh_topic, gc.MessageId.earliest, schema=ours.AvroSchema(Reader))
        assert [(await typed.read_next(RECEIVE_MS)).value() for _ in range(2)] == [Reader(1, -1), Reader(2, 7)]

    run(standalone.service_url, main)


def test_a_schema_that_does_not_fit_is_a_clear_error(standalone, official, fresh_topic: str) -> None:
    producer = official.create_producer(fresh_topic, schema=theirs.AvroSchema(TheirRecord))

    @dataclasses.dataclass
    class Unfit:
        a: str

    async def main(client: gc.Client) -> None:
        with pytest.raises(gc.IncompatibleSchema, match="a: "):
            await client.create_producer(fresh_topic, schema=ours.AvroSchema(Unfit))
        with pytest.raises(gc.IncompatibleSchema, match="a: "):
            await client.subscribe(fresh_topic, "sub", schema=ours.AvroSchema(Unfit))
        with pytest.raises(gc.IncompatibleSchema, match="AVRO, new schema type STRING"):
            await client.create_producer(fresh_topic, schema=ours.StringSchema())
        fits = await client.create_producer(fresh_topic, schema=ours.AvroSchema(Data))
        with pytest.raises(ours.SchemaSerializationError, match=r"Data\.c: "):
            await fits.send(Data(1, c="text"))  # type: ignore[arg-type]

    run(standalone.service_url, main)
    producer.close()


PRIMITIVES = [
    (ours.BooleanSchema(), True),
    (ours.Int8Schema(), -5),
    (ours.Int16Schema(), 300),
    (ours.Int32Schema(), -70_000),
    (ours.Int64Schema(), 1 << 40),
    (ours.FloatSchema(), 1.5),
    (ours.DoubleSchema(), 0.1),
    (ours.DateSchema(), NOW),
    (ours.TimestampSchema(), NOW),
    (ours.InstantSchema(), NOW.replace(microsecond=123456)),
    (ours.TimeSchema(), dt.time(1, 2, 3, 4000)),
    (ours.LocalDateSchema(), dt.date(1969, 12, 31)),
    (ours.LocalTimeSchema(), dt.time(1, 2, 3, 4)),
    (ours.LocalDateTimeSchema(), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
]


def test_every_primitive_is_exchanged_and_known_to_auto_consume(standalone, fresh_topic: str) -> None:
    async def main(client: gc.Client) -> None:
        for index, (schema, value) in enumerate(PRIMITIVES):
            topic = f"{fresh_topic}-{index}"
            [message] = await exchange(client, topic, schema, schema, value)
            assert message.value() == value
            auto = await client.create_reader(topic, gc.MessageId.earliest, schema=ours.AutoConsumeSchema())
            assert (await auto.read_next(RECEIVE_MS)).value() == value
            found = await client.get_schema(topic)
            assert found is not None
            assert found.info.type is schema.info.type

    run(standalone.service_url, main)


@pytest.mark.parametrize("encoding", ours.KeyValueEncoding)
def test_key_values_are_exchanged(encoding: ours.KeyValueEncoding, standalone, fresh_topic: str) -> None:
    schema = ours.KeyValueSchema(ours.StringSchema(), ours.AvroSchema(Data), encoding)
    pair = ours.KeyValue("key é", filled(Data, Datas.Sub))

    async def main(client: gc.Client) -> None:
        [message] = await exchange(client, fresh_topic, schema, schema, pair)
        assert message.value() == pair
        is_separated = encoding is ours.KeyValueEncoding.SEPARATED
        assert message.has_key() == is_separated
        auto = await client.create_reader(fresh_topic, gc.MessageId.earliest, schema=ours.AutoConsumeSchema())
        generic = (await auto.read_next(RECEIVE_MS)).value()
        assert generic.key == pair.key
        assert generic.value["counts"] == {"k": 3}

    run(standalone.service_url, main)


def test_auto_produce_checks_what_it_sends(standalone, fresh_topic: str) -> None:
    async def main(client: gc.Client) -> None:
        free = await client.create_producer(fresh_topic, schema=ours.AutoProduceBytesSchema())
        await free.send(b"anything")
        await free.close()
        topic = f"{fresh_topic}-with-schema"
        avro = ours.AvroSchema(Data)
        await (await client.create_producer(topic, schema=avro)).close()
        consumer = await client.subscribe(topic, "sub", schema=avro)
        producer = await client.create_producer(topic, schema=ours.AutoProduceBytesSchema())
        value = filled(Data, Datas.Sub)
        with pytest.raises(ours.SchemaSerializationError):
            await producer.send(b"anything")
        await producer.send(avro.encode(value))
        assert (await consumer.receive(RECEIVE_MS)).value() == value

    run(standalone.service_url, main)


def test_auto_consume_gives_bytes_where_there_is_no_schema(standalone, fresh_topic: str) -> None:
    async def main(client: gc.Client) -> None:
        [message] = await exchange(client, fresh_topic, None, ours.AutoConsumeSchema(), b"plain")
        assert message.value() == b"plain"

    run(standalone.service_url, main)


def test_partitions_share_the_topics_schema(standalone, fresh_topic: str) -> None:
    local = fresh_topic.rpartition("/")[2]
    standalone.request("PUT", f"/admin/v2/persistent/public/default/{local}/partitions", 3)
    schema = ours.AvroSchema(Data)

    async def main(client: gc.Client) -> None:
        values = [Data(number, s=str(uuid.UUID(int=number))) for number in range(9)]
        messages = await exchange(client, fresh_topic, schema, schema, *values)
        assert sorted((message.value() for message in messages), key=lambda data: data.a) == values
        found = await client.get_schema(fresh_topic)
        assert found is not None
        assert found.version == bytes(8)

    run(standalone.service_url, main)


def test_a_table_view_decodes_and_forgets_null_values(standalone, fresh_topic: str) -> None:
    schema = ours.AvroSchema(Data)

    async def main(client: gc.Client) -> None:
        producer = await client.create_producer(fresh_topic, schema=schema)
        await producer.send(Data(1), partition_key="one")
        await producer.send(Data(2), partition_key="two")
        await producer.send(None, partition_key="one")
        async with await client.create_table_view(fresh_topic, schema=schema) as view:
            assert view.get("two") == Data(2)
            assert view.get("one") is None
            assert len(view) == 1

    run(standalone.service_url, main)

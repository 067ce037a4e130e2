"""Which rows come out of which messages: every kind of entry, read without a JVM against a real broker."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import pytest

import geminga
from geminga.app.commands.cli import main
from geminga.app.commands.pipeline_commands import _status_lines
from geminga.client import CompressionType, MessageId
from geminga.spark.pipelines.checkpoint import CheckpointState
from geminga.spark.pipelines.connecting import lags
from geminga.spark.pipelines.loading import load
from geminga.spark.pipelines.sampling import sample
from geminga.spark.rules.metadata_columns import ALL_COLUMNS
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.connector.spark_source import Stream, read_batch, values
from support.house.signing import pem_files
from support.processes.raw_protocol import publish_entry


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    with geminga.Standalone(
        config={"managedLedgerMaxEntriesPerLedger": 50, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
    ) as one:
        yield one


@pytest.fixture
def options(broker, topic) -> dict[str, str]:
    return {"service.url": broker.service_url, "topic": topic}


@pytest.mark.parametrize("compression", list(CompressionType))
def test_batches_of_every_compression_and_single_messages_come_out_in_order(client, topic, options, compression):
    expected = []
    for is_batched in (True, False, True):
        with client.create_producer(
            topic, compression_type=compression, batching_enabled=is_batched, batching_max_messages=7
        ) as producer:
            for _ in range(20):
                expected.append(b"%d" % len(expected) * (1 + len(expected) % 5))
                producer.send_nowait(expected[-1])
            producer.flush()
    assert values(read_batch(options)) == expected


def test_every_column_says_what_the_message_says(client, topic, options):
    with client.create_producer(topic, producer_name="me", batching_max_messages=3) as producer:
        producer.send_nowait(b"a", partition_key="k", event_timestamp=1234, properties={"x": "1", "y": ""})
        producer.send_nowait(b"", partition_key=b"\xff\x00")
        producer.send_nowait(None, properties={"z": "3"})
        producer.flush()
    with client.create_producer(topic, producer_name="single", batching_enabled=False) as producer:
        producer.send(b"b", partition_key="s", event_timestamp=5678, properties={"q": "r"})
        producer.send(None)
    rows = read_batch({**options, "metadataColumns": ",".join(ALL_COLUMNS)})
    with client.create_reader(topic, MessageId.earliest) as reader:
        messages = [reader.read_next(5000) for _ in rows]
    assert values(rows) == [b"a", b"", None, b"b", None]
    assert [row["__key"] for row in rows] == [b"k", b"\xff\x00", None, b"s", None]
    assert [row["__messageId"] for row in rows] == [message.message_id().serialize() for message in messages]
    assert [dict(row["__messageProperties"]) for row in rows] == [dict(message.properties()) for message in messages]
    assert [round(row["__publishTime"].timestamp() * 1000) for row in rows] == [m.publish_timestamp() for m in messages]
    event_times = [row["__eventTime"] and round(row["__eventTime"].timestamp() * 1000) for row in rows]
    assert event_times == [message.event_timestamp() or None for message in messages]
    assert [row["__sequenceId"] for row in rows] == [0, 1, 2, 0, 1]
    assert [row["__producerName"] for row in rows] == ["me"] * 3 + ["single"] * 2
    assert {row["__topic"] for row in rows} == {topic}
    assert {(row["__partition"], row["__redeliveryCount"], row["__schemaVersion"]) for row in rows} == {(-1, 0, None)}


def test_stream_reads_what_came_since_the_last_batch_and_nothing_twice(client, topic, options):
    with client.create_producer(topic, batching_max_messages=4) as producer:
        producer.send(b"before")
        stream = Stream({**options, "longPollMs": "10"})
        assert stream.batch() == []  # batch 0 of "latest" is empty by definition
        assert len(stream.log) == 1
        sent = []
        for _ in range(3):
            assert not stream.plan()
            for _ in range(25):
                sent.append(b"%d" % len(sent))
                producer.send_nowait(sent[-1])
            producer.flush()
            assert values(stream.batch()) == sent[-25:]
    stream.stop()


# ---- special entries


def test_chunked_messages_come_out_whole_wherever_a_range_begins(client, topic, options):
    big = [bytes([65 + index]) * 30_000 for index in range(4)]
    with client.create_producer(
        topic, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=4096
    ) as producer:
        for index, value in enumerate(big):
            producer.send(b"small%d" % index)
            producer.send(value)
    expected = [value for index, one in enumerate(big) for value in (b"small%d" % index, one)]
    rows = read_batch(options)
    assert values(rows) == expected
    # In the middle of a chunked message: it belongs to where its last chunk lies, once.
    middle = MessageId.deserialize(rows[3]["__messageId"])
    at = f"{middle.ledger_id()}:{middle.entry_id() - 2}:0"
    assert values(read_batch({**options, "endingOffsets": f'{{"{topic}":"{at}"}}'})) == expected[:3]
    assert values(read_batch({**options, "startingOffsets": f'{{"{topic}":"{at}"}}'})) == expected[3:]
    assert middle.first_chunk_message_id() is not None
    stream = Stream({**options, "startingOffsets": "earliest", "maxMessagesPerTrigger": "1"})
    batches = [values(found) for found in stream.batches()]
    assert [value for batch in batches for value in batch] == expected
    assert [len(batch) for batch in batches] == [1] * 8
    stream.stop()


def test_chunked_message_that_is_not_whole_yet_does_not_hold_a_batch_up(broker, client, topic, options):
    with client.create_producer(topic) as producer:
        producer.send(b"before")
    publish_entry(broker, topic, b"half", uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=9)
    stream = Stream({**options, "startingOffsets": "earliest", "pollTimeoutMs": "3000"})
    assert values(stream.batch()) == [b"before"]
    publish_entry(broker, topic, b"whole", uuid="u", chunk_id=1, num_chunks_from_msg=2, total_chunk_msg_size=9)
    assert values(stream.batch()) == [b"halfwhole"]
    stream.stop()


def test_range_that_ends_behind_a_piece_of_a_message_from_before_it_has_what_lies_between(
    broker, client, topic, options
):
    """The look back for that message's beginning drops what was prefetched: it is read again, not taken for read."""
    piece = {"uuid": "u", "num_chunks_from_msg": 3, "total_chunk_msg_size": 3}
    publish_entry(broker, topic, b"x", chunk_id=0, **piece)
    # Longer than an entry is waited for.
    given = {
        "startingOffsets": "earliest",
        "numPartitions": "1",
        "pulsar.client.initialBackoffIntervalNanos": "500000000",
    }
    stream = Stream({**options, **given})
    assert stream.batch() == []
    with client.create_producer(topic) as producer:
        sent = [b"%d" % number for number in range(5)]
        for value in sent:
            producer.send(value)
    publish_entry(broker, topic, b"x", chunk_id=1, **piece)
    assert values(stream.batch()) == sent
    publish_entry(broker, topic, b"x", chunk_id=2, **piece)
    assert values(stream.batch()) == [b"xxx"]
    stream.stop()


def test_encrypted_messages_need_the_key_and_say_so(client, topic, options, tmp_path):
    from geminga.client import CryptoError, CryptoKeyReader

    public, private = pem_files(tmp_path)
    reader = CryptoKeyReader(public, private)
    with client.create_producer(
        topic, encryption_key="mine", crypto_key_reader=reader, compression_type=CompressionType.LZ4
    ) as producer:
        for index in range(10):
            producer.send_nowait(b"secret%d" % index)
        producer.flush()
    with pytest.raises(CryptoError, match=r"entry \d+:0 is encrypted, and no key was given"):
        read_batch(options)
    opened = values(read_batch({**options, "pulsar.reader.cryptoPrivateKeyPath": private}))
    assert opened == [b"secret%d" % index for index in range(10)]
    stream = Stream({**options, "startingOffsets": "earliest", "maxMessagesPerTrigger": "4"})
    assert stream.plan()  # counting needs no key
    stream.stop()


def test_damaged_entry_fails_the_query_and_is_never_left_out(broker, client, topic, options):
    from geminga.client import ReadError

    with client.create_producer(topic) as producer:
        producer.send(b"before")
    publish_entry(broker, topic, b"not lz4", compression=pb.LZ4, uncompressed_size=70)
    with client.create_producer(topic) as producer:
        producer.send(b"after")
    with pytest.raises(ReadError, match=r"entry \d+:1 can not be read: decompression"):
        read_batch(options)


# ---- schemas


def test_schema_of_the_topic_gives_columns_and_old_versions_their_defaults(client, topic, options):
    from dataclasses import dataclass

    from geminga.client.schema import AvroSchema

    @dataclass
    class Event:
        name: str
        count: int

    first = AvroSchema(Event)
    with client.create_producer(topic, schema=first) as producer:
        producer.send(Event("a", 1))

    @dataclass
    class Event:  # type: ignore[no-redef]
        name: str
        count: int
        place: str = "here"

    with client.create_producer(topic, schema=AvroSchema(Event)) as producer:
        producer.send(Event("b", 2, "there"))
        producer.send(None)
    options = {**options, "schemaMode": "topic", "metadataColumns": "__schemaVersion"}
    rows = read_batch(options)
    assert [(row["name"], row["count"], row["place"]) for row in rows] == [
        ("a", 1, "here"),
        ("b", 2, "there"),
        (None, None, None),
    ]
    assert len({row["__schemaVersion"] for row in rows}) == 2


def test_column_that_was_added_while_a_query_runs_is_said_and_there_after_a_restart(client, topic, options, caplog):
    from dataclasses import dataclass

    from geminga.client.schema import AvroSchema

    @dataclass
    class Event:
        name: str

    first = AvroSchema(Event)
    with client.create_producer(topic, schema=first) as producer:
        producer.send(Event("a"))
    stream = Stream(
        {**options, "schemaMode": "topic", "metadataColumns": "", "startingOffsets": "earliest", "subscription": "s"}
    )
    assert stream.batch() == [{"name": "a"}]
    assert not caplog.records

    @dataclass
    class Event:  # type: ignore[no-redef]
        name: str
        place: str = "here"

    with client.create_producer(topic, schema=AvroSchema(Event)) as producer:
        for name in ("b", "c"):
            producer.send(Event(name, "there"))
            assert stream.batch() == [{"name": name}]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "messages of schema version 1 have place, which the query has no column for" in said
    stream.restart()
    assert stream.read() == [{"name": "c", "place": "there"}]
    stream.stop()


def test_fixed_schema_takes_columns_by_name_from_each_messages_own_version(client, topic, options):
    from dataclasses import dataclass

    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from geminga.client.schema import JsonSchema

    @dataclass
    class Event:
        name: str
        count: int

    with client.create_producer(topic, schema=JsonSchema(Event)) as producer:
        producer.send(Event("a", 1))
    wanted = StructType([StructField("count", LongType()), StructField("other", StringType())])
    rows = read_batch({**options, "schemaMode": "fixed", "metadataColumns": ""}, wanted)
    assert rows == [{"count": 1, "other": None}]


@pytest.mark.parametrize(
    ("schema", "kind", "sent"),
    [
        ("StringSchema", "string", ["a", "ü", ""]),
        ("Int32Schema", "int", [1, -2, 3]),
        ("Int64Schema", "bigint", [1, -(1 << 60)]),
        ("DoubleSchema", "double", [1.5, -0.25]),
        ("BooleanSchema", "boolean", [True, False]),
        ("BytesSchema", "binary", [b"x"]),
    ],
)
def test_primitive_schema_gives_a_value_of_its_type_and_null_for_tombstones(client, topic, options, schema, kind, sent):
    import geminga.client.schema as schemas
    from pyspark_geminga import DefaultSource

    with client.create_producer(topic, schema=getattr(schemas, schema)()) as producer:
        for value in [*sent, None]:
            producer.send(value)
    options = {**options, "schemaMode": "topic"}
    assert DefaultSource(options=options).schema()["value"].dataType.simpleString() == kind
    assert values(read_batch(options)) == [*sent, None]


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
@pytest.mark.parametrize("is_batched", [True, False])
def test_pairs_of_key_and_value_are_two_columns(client, topic, options, encoding, is_batched):
    from geminga.client.schema import Int64Schema, KeyValue, KeyValueEncoding, KeyValueSchema, StringSchema

    schema = KeyValueSchema(Int64Schema(), StringSchema(), KeyValueEncoding[encoding])
    with client.create_producer(topic, schema=schema, batching_enabled=is_batched) as producer:
        for number in range(5):
            producer.send_nowait(KeyValue(number, str(number)))
        producer.flush()
    rows = read_batch({**options, "schemaMode": "topic", "metadataColumns": ""})
    assert rows == [{"key": number, "value": str(number)} for number in range(5)]


def test_messages_of_protobuf_are_columns_and_one_that_is_none_is_named(broker, client, topic, options):
    from geminga.client.schema import ProtobufNativeSchema
    from geminga.spark.source_rules.errors import SchemaError

    with client.create_producer(topic, schema=ProtobufNativeSchema(pb.KeyLongValue)) as producer:
        for number in range(3):
            producer.send(pb.KeyLongValue(key=str(number), value=(1 << 64) - 1))
        producer.send(None)
    rows = read_batch({**options, "schemaMode": "topic", "metadataColumns": ""})
    assert [row["key"] for row in rows] == ["0", "1", "2", None]
    assert [row["value"] for row in rows] == [Decimal((1 << 64) - 1)] * 3 + [None]
    version = client.get_schema(topic).version
    publish_entry(broker, topic, b"\xff", schema_version=version)
    with pytest.raises(SchemaError, match=rf"{topic}: message \d+:\d+:\d+ does not fit its schema"):
        read_batch({**options, "schemaMode": "topic"})


def test_topics_of_different_schemas_are_refused_in_mode_topic_and_read_in_mode_raw(client, topic, options):
    from geminga.client.schema import Int32Schema, StringSchema
    from geminga.spark.source_rules.errors import SchemaError

    for name, schema, value in (("a", Int32Schema(), 7), ("b", StringSchema(), "x")):
        with client.create_producer(f"{topic}-{name}", schema=schema) as producer:
            producer.send(value)
    options = {**options, "topic": "", "topics": f"{topic}-a,{topic}-b"}
    with pytest.raises(SchemaError, match="different schemas"):
        read_batch({**options, "schemaMode": "topic"})
    assert values(read_batch(options)) == [b"\0\0\0\7", b"x"]


# ---- filters


def test_filters_narrow_what_is_read_and_stay_with_spark(client, topic, options):
    from datetime import timedelta

    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

    from pyspark_geminga import DefaultSource
    from support.connector.spark_source import rows_of

    for name in "ab":
        with client.create_producer(f"{topic}-{name}", batching_max_messages=5) as producer:
            for index in range(20):
                producer.send_nowait(b"%s%d" % (name.encode(), index))
            producer.flush()
    options = {**options, "topic": "", "topics": f"{topic}-a,{topic}-b", "filterPushdown": "true"}

    def read(*filters):
        source = DefaultSource(options=options)
        reader = source.reader(source.schema())
        assert list(reader.pushFilters(list(filters))) == list(filters)
        return rows_of(reader, reader.partitions())

    everything = read()
    assert len(everything) == 40
    assert {row["__topic"] for row in read(In(("__topic",), (f"{topic}-b", "other")))} == {f"{topic}-b"}
    wanted = everything[7]
    found = read(EqualTo(("__topic",), wanted["__topic"]), EqualTo(("__messageId",), wanted["__messageId"]))
    assert found == [wanted]
    at = wanted["__publishTime"]
    assert read(LessThan(("__publishTime",), at - timedelta(hours=1))) == []
    assert read(GreaterThanOrEqual(("__publishTime",), at + timedelta(hours=1))) == []
    assert wanted in read(EqualTo(("__publishTime",), at))
    assert read(EqualTo(("value",), b"x")) == everything
    for no_id in (b"", b"\xff", b"order-1"):  # without filterPushdown it is a condition that no row fulfils, no error
        assert read(EqualTo(("__messageId",), bytearray(no_id))) == everything


def test_messages_compacted_out_of_a_batch_are_no_rows_and_keep_the_others_their_ids(broker, client, topic, options):
    parts = b""
    for index in range(4):
        single = pb.SingleMessageMetadata(payload_size=1, compacted_out=index == 1).SerializeToString()
        parts += len(single).to_bytes(4, "big") + single + b"%d" % index
    with client.create_producer(topic):
        pass
    publish_entry(broker, topic, parts, num_messages_in_batch=4)
    rows = read_batch(options)
    assert values(rows) == [b"0", b"2", b"3"]
    assert [MessageId.deserialize(row["__messageId"]).batch_index() for row in rows] == [0, 2, 3]


def test_topic_that_is_empty_has_no_rows_and_is_read_from_its_first_message(client, topic, options):
    with client.create_producer(topic) as producer:
        assert read_batch(options) == []
        stream = Stream({**options, "longPollMs": "10"})
        assert stream.batch() == []
        assert not stream.plan()
        producer.send(b"first")
        assert values(stream.batch()) == [b"first"]
        stream.stop()


def test_partitions_are_read_each_from_its_own_place(broker, client, topic, options):
    from support.worlds.rest import Rest

    name = topic.removeprefix("persistent://")
    assert Rest(broker.web_service_url).put(f"persistent/{name}/partitions", 3).status in (200, 204)
    stream = Stream({**options, "startingOffsets": "earliest", "metadataColumns": "__topic,__partition"})
    with client.create_producer(topic, batching_enabled=False) as producer:
        for index in range(30):
            producer.send(b"%d" % index, partition_key=str(index))
    rows = stream.batch()
    assert sorted(values(rows)) == sorted(b"%d" % index for index in range(30))
    assert {(row["__topic"], row["__partition"]) for row in rows} == {(f"{topic}-partition-{n}", n) for n in range(3)}
    assert sorted(stream.offset().topics) == [f"{topic}-partition-{index}" for index in range(3)]
    stream.stop()


DIRTY = [b'{"id":1}', b'{"id":2.5}', b'{"id":"5"}', b'{"id":9007199254740993}', b'{"id":4} x', b"", b'{"id":true}']
DIRTY_ROWS = [1, 2, 4, 5, 6]


@pytest.fixture(params=["topic", "raw"])
def dirty(request, client, topic, options) -> dict[str, str]:
    """Options for a topic of JSON, of which some does not fit: by its schema, or by columns that are asked for."""
    from geminga.client.schema import JsonSchema

    @dataclass
    class Item:
        id: int

    if request.param == "raw":
        options = {**options, "jsonColumns": "id long"}
    else:
        options = {**options, "schemaMode": "topic"}
        client.create_producer(topic, schema=JsonSchema(Item)).close()
    with client.create_producer(topic) as producer:
        for number, payload in enumerate(DIRTY):
            producer.send_nowait(payload, partition_key=f"k{number}", properties={"n": str(number)})
        producer.flush()
    return options


def test_value_that_a_column_can_not_hold_is_an_error_with_topic_and_message(topic, dirty):
    from geminga.spark.source_rules.errors import SchemaError

    with pytest.raises(SchemaError, match=rf"{topic}: message \d+:\d+:1 does not fit .*id: 2\.5 .*\(4 more near it\)"):
        read_batch(dirty)


def test_messages_that_do_not_fit_are_nulls_with_a_reason_if_asked_for(dirty):
    rows = read_batch({**dirty, "invalid": "keep", "metadataColumns": "__invalid"})
    assert [number for number, row in enumerate(rows) if row["__invalid"]] == DIRTY_ROWS
    reasons = [rows[number]["__invalid"] for number in DIRTY_ROWS]
    assert "2.5" in reasons[0]
    assert "Extra data" in reasons[2]
    if "id" in rows[0]:
        assert [row["id"] for row in rows] == [1, None, None, 9007199254740993, None, None, None]


def test_messages_that_do_not_fit_go_to_another_topic_if_asked_for(client, topic, dirty):
    from geminga.spark.source.misfits import ID_PROPERTY, REASON_PROPERTY, TOPIC_PROPERTY

    rows = read_batch({**dirty, "badRecordsTopic": f"{topic}-bad", "metadataColumns": "__key"})
    fitting = [number for number in range(len(DIRTY)) if number not in DIRTY_ROWS]
    assert [row["__key"] for row in rows] == [b"k%d" % number for number in fitting]
    with client.create_reader(f"{topic}-bad", MessageId.earliest) as reader:
        found = [reader.read_next() for _ in DIRTY_ROWS]
        assert not reader.has_message_available()
    assert [message.data() for message in found] == [DIRTY[number] for number in DIRTY_ROWS]
    assert [message.partition_key() for message in found] == [f"k{number}" for number in DIRTY_ROWS]
    assert [message.properties()["n"] for message in found] == [str(number) for number in DIRTY_ROWS]
    assert {message.properties()[TOPIC_PROPERTY] for message in found} == {topic}
    assert found[0].properties()[ID_PROPERTY].endswith(":1")
    assert all(message.properties()[REASON_PROPERTY] for message in found)


def test_a_message_that_does_not_fit_and_went_in_chunks_goes_to_another_topic_too(broker, client, topic):
    large = b'{"id": "' + b"x" * 6_000_000 + b'"}'
    with client.create_producer(topic, chunking_enabled=True, batching_enabled=False) as producer:
        for payload in (b'{"id": 1}', b"small", large, b'{"id": 2}'):
            producer.send(payload)
    options = {"service.url": broker.service_url, "topic": topic, "jsonColumns": "id long"}
    rows = read_batch({**options, "badRecordsTopic": f"{topic}-bad"})
    assert values(rows) == [b'{"id": 1}', b'{"id": 2}']
    with client.create_reader(f"{topic}-bad", MessageId.earliest) as reader:
        assert [reader.read_next().data() for _ in range(2)] == [b"small", large]


#: A value for each kind of dirt, and the type of its column.
DIRT = {
    "fraction": ("bigint", b"2.5"),
    "quoted": ("bigint", b'"5"'),
    "huge": ("int", b"3000000000"),
    "flag": ("boolean", b"1"),
    "rounded": ("decimal(5,1)", b"1.25"),
    "infinite": ("double", b"1e400"),
    "day": ("date", b'"2024-13-02"'),
    "moment": ("timestamp", b'"yesterday"'),
    "bytes": ("binary", b'"Q?="'),
    "items": ("array<int>", b'[1,"x"]'),
    "text": ("string", b'"\\ud800"'),
}


@pytest.mark.parametrize("is_dirty", [True, False])
def test_sample_of_a_pipeline_names_each_dirty_column_and_nothing_of_a_clean_topic(
    broker, client, topic, tmp_path, monkeypatch, capsys, is_dirty
):
    def validate(sample):
        monkeypatch.setattr(sys, "argv", ["geminga", "pipeline", "validate", str(path), "--sample", sample])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().out

    columns = ", ".join([*(f"{name} {kind}" for name, (kind, _) in DIRT.items()), "Extra int", "absent int"])
    path = tmp_path / "sampled.yaml"
    path.write_text(
        f"pipeline: sampled\ncluster: {{service_url: '{broker.service_url}'}}\n"
        f"sources:\n  - topic: {topic}\n    columns: '{columns}'\nsink: {{topic: {topic}-out}}\n"
    )
    clean = b'{"fraction":1,"quoted":2,"huge":3,"flag":true,"rounded":1.2,"infinite":0.1,"day":"2024-01-02","extra":1}'
    with client.create_producer(topic) as producer:
        for number in range(30):
            producer.send_nowait(clean if number else None)
        for name, (_, text) in DIRT.items() if is_dirty else ():
            producer.send_nowait(b'{"%s":%s}' % (name.encode(), text))
        producer.send_nowait(clean + b"x" if is_dirty else clean)
        producer.flush()
    code, told = validate("1000")
    assert code == (1 if is_dirty else 0), told
    if not is_dirty:
        lines = told.splitlines()
        assert lines.pop() == f"{path}: sampled is valid; 31 messages of 1 topics fit"
        never = "none of 30 messages has it, and it would be null in every row"
        said = f"{path}:5: sources[0].columns: {topic}: column"
        assert f"{said} Extra: {never}; they have extra: JSON tells upper from lower case" in lines
        assert lines[-1].startswith(f"{said} absent: {never}; expected one of day, extra, flag")
        assert len(lines) == 6
        return
    assert sorted(re.findall(r"column (\w+): 1 of 42 messages do not fit, the first is \d+:\d+:\d+", told)) == sorted(
        DIRT
    )
    assert f"{path}:4: sources[0]: {topic}: the value as a whole: 1 of 42" in told
    found = sample(load(str(path)), 30)  # those of the beginning fit
    assert (found.messages, found.topics, found.problems) == (30, {topic}, [])


def test_status_of_a_pipeline_tells_of_each_topic_though_one_is_gone(broker, client, topic, tmp_path):
    with client.create_producer(topic) as producer:
        at = producer.send(b"v")
    gone = f"{topic}-gone"
    path = tmp_path / "status.yaml"
    path.write_text(
        f"pipeline: status\ncluster: {{service_url: '{broker.service_url}'}}\n"
        f"sources:\n  - topics: ['{topic}', '{gone}']\nsink: {{topic: {topic}-out}}\n"
    )
    offset = {"v": 1, "t": {topic: f"{at.ledger_id()}:0:0", gone: "5:1:0"}}
    found = lags(load(str(path)), (offset,))
    assert found[topic]["entriesBehind"] == 1
    assert found[gone]["position"] == "5:1:0"
    assert found[gone]["problem"].startswith(f"{gone}: ")
    state = CheckpointState("c", False, 0, "", 0, 0, "", 0, (offset,), "")
    lines = _status_lines(load(str(path)), state, found)
    assert lines[-1] == f"{gone}  read to 5:1:0: {found[gone]['problem'].removeprefix(f'{gone}: ')}"
    assert lines[-2].endswith("1 entries behind")

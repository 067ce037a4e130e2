"""What becomes of a row: every field of the message, every topic and partition, every kind of payload."""

from __future__ import annotations

import datetime as dt
import json

import pulsar
import pytest

import geminga.client
import geminga.client.blocking
import geminga.client.schema
from geminga.client.producer_rules.router import partition_of_key
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink.writer import BatchWriter
from geminga.spark.sink_rules.errors import SinkError
from support.connector.sink_cases import arrow_batches, run_task, schema_of, stored
from support.connector.spark_source import read_batch
from support.house.signing import pem_files

UTC = dt.UTC


@pytest.fixture
def dedup_topic(dedup_namespace, fresh_topic) -> str:
    return fresh_topic.replace("public/default", dedup_namespace)


def writer_for(standalone, ddl: str, **options: str) -> BatchWriter:
    given = {
        "service.url": standalone.service_url,
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    return BatchWriter(given, schema_of(ddl), overwrite=False)


def test_every_field_of_a_row_arrives(standalone, official, fresh_topic) -> None:
    ddl = "value binary, __key string, __eventTime timestamp, __properties map, __orderingKey binary"
    moment = dt.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
    rows = [
        (b"one", "k1", moment, {"b": "2", "a": "1"}, b"\x00o"),
        (None, None, None, None, None),
        (b"", "", moment, {}, b""),
    ]
    message = run_task(writer_for(standalone, ddl, topic=fresh_topic), arrow_batches(ddl, rows))
    assert message.rows == {fresh_topic: 3}
    one, null, empty = stored(official, fresh_topic, 3)
    assert (one.data(), one.partition_key(), one.properties()) == (b"one", "k1", {"a": "1", "b": "2"})
    assert (one.ordering_key(), null.data(), null.partition_key()) == ("\x00o", b"", "")
    assert (null.event_timestamp(), null.properties()) == (0, {})
    assert (empty.data(), empty.event_timestamp()) == (b"", one.event_timestamp())


def test_event_time_is_milliseconds_not_microseconds(standalone, official, fresh_topic) -> None:
    # pulsar-spark passes microseconds on: a round trip is a thousand times off.
    ddl = "value string, __eventTime timestamp"
    moment = dt.datetime(2024, 2, 29, 12, 30, 15, 123999, tzinfo=UTC)
    run_task(writer_for(standalone, ddl, topic=fresh_topic), arrow_batches(ddl, [("v", moment)]))
    assert stored(official, fresh_topic, 1)[0].event_timestamp() == 1709209815123


def test_key_that_is_no_text_travels_as_base64_and_one_that_is_as_it_is(standalone, fresh_topic) -> None:
    rows = [(b"v", b"\x00\xffk"), (b"w", "k\u00e9".encode()), (b"x", None), (b"y", b""), (b"z", "\u00e9".encode()[:1])]
    for number, kept in enumerate((rows, rows[1:4])):
        topic = f"{fresh_topic}-{number}"
        columns = "value binary, __key binary"
        run_task(writer_for(standalone, columns, topic=topic), arrow_batches(columns, kept))
        found = [(one.data(), one.key_bytes(), one.has_base64_key()) for one in standalone_reader(standalone, topic)]
        is_base64 = {b"v": True, b"z": True}
        assert found == [(value, key or b"", is_base64.get(value, False)) for value, key in kept]


def test_rows_that_were_read_are_written_as_the_messages_they_were(standalone, official, fresh_topic) -> None:
    # A text key read as bytes became base64 when it was written again: another partition, another key for its readers.
    ddl = "value binary, __key string"
    run_task(writer_for(standalone, ddl, topic=fresh_topic), arrow_batches(ddl, [(b"v", "k\u00e9"), (b"w", None)]))
    columns = "__key,__eventTime,__messageProperties"
    source = {"service.url": standalone.service_url, "topic": fresh_topic, "metadataColumns": columns}
    rows = [tuple(row.values()) for row in read_batch(source)]
    again = "value binary, __key binary, __eventTime timestamp, __messageProperties map"
    run_task(writer_for(standalone, again, topic=f"{fresh_topic}-again"), arrow_batches(again, rows))
    first, second = stored(official, f"{fresh_topic}-again", 2)
    assert (first.data(), first.partition_key()) == (b"v", "k\u00e9")
    assert (second.data(), second.partition_key()) == (b"w", "")


def standalone_reader(standalone, topic: str):
    client = geminga.client.blocking.connect(standalone.service_url)
    try:
        reader = client.create_reader(topic, geminga.client.MessageId.earliest)
        messages = []
        while reader.has_message_available():
            messages.append(reader.read_next(10_000))
        return messages
    finally:
        client.close()


def test_rows_go_to_the_topic_of_their_column(standalone, official, fresh_topic) -> None:
    columns = "value string, __topic string"
    short = fresh_topic.rpartition("/")[2]
    rows = [
        (str(number), f"{short}-{number % 3}" if number % 2 else f"{fresh_topic}-{number % 3}") for number in range(300)
    ]
    message = run_task(writer_for(standalone, columns), arrow_batches(columns, rows, size=70))
    assert message.rows == {f"{fresh_topic}-{number}": 100 for number in range(3)}
    for number in range(3):
        values = [one.data() for one in stored(official, f"{fresh_topic}-{number}", 100)]
        assert values == [str(value).encode() for value in range(300) if value % 3 == number]


def test_option_topic_goes_before_the_column(standalone, official, fresh_topic) -> None:
    columns = "value string, __topic string"
    run_task(writer_for(standalone, columns, topic=fresh_topic), arrow_batches(columns, [("v", None), ("w", "x y")]))
    assert [one.data() for one in stored(official, fresh_topic, 2)] == [b"v", b"w"]


def test_null_topic_is_an_error_not_a_lost_row(standalone, fresh_topic) -> None:
    columns = "value string, __topic string"
    batches = arrow_batches(columns, [("v", fresh_topic), ("w", None)])
    with pytest.raises(OptionError, match="__topic is null"):
        run_task(writer_for(standalone, columns), batches)


def test_partitions_follow_the_column_then_the_key_then_take_turns(standalone, official, fresh_topic) -> None:
    name = fresh_topic.removeprefix("persistent://")
    standalone.request("PUT", f"/admin/v2/persistent/{name}/partitions", 4)
    columns = "value string, __key string, __partition int"
    rows = [(f"g{number}", f"k{number}", number % 4) for number in range(40)]
    rows += [(f"k{number % 8}", f"k{number % 8}", None) for number in range(80)]
    rows += [(f"n{number}", None, -1) for number in range(4000)]
    run_task(writer_for(standalone, columns, topic=fresh_topic), arrow_batches(columns, rows))
    homes = {f"k{number}": partition_of_key(f"k{number}", 4, murmur3=False) for number in range(8)}
    counts = []
    for partition in range(4):
        values = [one.value().decode() for one in standalone_reader(standalone, f"{fresh_topic}-partition-{partition}")]
        assert [value for value in values if value[0] == "g"] == [f"g{n}" for n in range(40) if n % 4 == partition]
        assert {value for value in values if value[0] == "k"} == {
            key for key, home in homes.items() if home == partition
        }
        counts.append(sum(value[0] == "n" for value in values))
    assert counts == [1000] * 4


def test_partition_that_the_topic_does_not_have_is_an_error(standalone, fresh_topic) -> None:
    columns = "value string, __partition int"
    with pytest.raises(OptionError, match="__partition is 1, while the topic has 1"):
        run_task(writer_for(standalone, columns, topic=fresh_topic), arrow_batches(columns, [("v", 0), ("w", 1)]))


def test_delayed_rows_wait_and_keep_their_fields(standalone, official, fresh_topic) -> None:
    columns = "value string, __deliverAt timestamp, __properties map"
    consumer = official.subscribe(fresh_topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    later = dt.datetime.now(UTC) + dt.timedelta(hours=1)
    rows = [("now", None, None), ("later", later, {"p": "1"}), ("now2", None, None)]
    run_task(writer_for(standalone, columns, topic=fresh_topic), arrow_batches(columns, rows))
    assert [consumer.receive(5_000).data() for _ in range(2)] == [b"now", b"now2"]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)
    consumer.close()
    delayed = stored(official, fresh_topic, 3)[1]
    assert (delayed.data(), delayed.properties()) == (b"later", {"p": "1"})


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_several_columns_become_a_record_with_a_registered_schema(standalone, official, fresh_topic, kind) -> None:
    columns = "name string, count bigint, at timestamp, day date, tags array, more map, where point, __key string"
    moment, day = dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC), dt.date(2024, 2, 29)
    full = ("n", 7, moment, day, [1, 2], {"a": "b"}, {"x": 1, "y": 0.5}, "k")
    rows = [full, (None,) * 8]
    run_task(writer_for(standalone, columns, topic=fresh_topic, schemaType=kind), arrow_batches(columns, rows))
    client = geminga.client.blocking.connect(standalone.service_url)
    info = client.get_schema(fresh_topic).info
    assert info.type.name == kind.upper()
    messages = standalone_reader(standalone, fresh_topic)
    if kind == "avro":
        decode = geminga.client.schema.AvroSchema(schema_definition=info.schema.decode()).decode
        first, second = (decode(message.data()) for message in messages)
        assert (first["at"], first["day"], first["where"]["y"]) == (moment, day, 0.5)
    else:
        first, second = (json.loads(message.data()) for message in messages)
        assert (first["at"], first["day"], first["where"]) == (1709168523000004, 19782, {"x": 1, "y": 0.5})
    assert (first["name"], first["count"], first["tags"], first["more"]) == ("n", 7, [1, 2], {"a": "b"})
    assert set(second.values()) == {None}
    assert messages[0].partition_key() == "k"
    client.close()


def test_value_too_large_for_an_entry_is_an_error(standalone, fresh_topic) -> None:
    batches = arrow_batches("value binary", [(bytes(6 << 20),)])
    with pytest.raises(SinkError, match=f"{fresh_topic}: a row can not be sent: 6291.* bytes, while the broker takes"):
        run_task(writer_for(standalone, "value binary", topic=fresh_topic), batches)


@pytest.mark.parametrize("guarantee", ["at-least-once", "effectively-once"])
def test_value_too_large_for_an_entry_is_chunked_where_the_options_say_so(standalone, dedup_topic, guarantee) -> None:
    columns = "value binary, __key string, __messageProperties map, __eventTime timestamp"
    moment = dt.datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC)
    large = bytes(range(256)) * (40 << 10)
    rows = [
        (b"a", "k", {}, moment),
        (large, "l", {"n": "v"}, moment),
        (None, "m", {}, None),
        (large[1:], None, {}, None),
    ]
    options = {"pulsar__producer__chunkingEnabled": "true", "guarantee": guarantee}
    if guarantee == "effectively-once":
        options.update(txnAppId=dedup_topic.rpartition("/")[2], txnVersion="1")
    for _ in range(2 if guarantee == "effectively-once" else 1):
        run_task(writer_for(standalone, columns, topic=dedup_topic, **options), arrow_batches(columns, rows))
    with geminga.client.blocking.connect(standalone.service_url) as client:
        reader = client.create_reader(dedup_topic, geminga.client.MessageId.earliest)
        found = [reader.read_next() for _ in rows]
        assert not reader.has_message_available()
        assert sorted(
            (one.data(), one.partition_key(), one.properties(), one.event_timestamp()) for one in found
        ) == sorted(
            (value or b"", key or "", properties, 1709209815000 if at else 0) for value, key, properties, at in rows
        )
        reader.close()


@pytest.mark.parametrize("guarantee", ["at-least-once", "effectively-once"])
def test_rows_are_encrypted_with_the_public_key_of_the_options(standalone, dedup_topic, tmp_path, guarantee) -> None:
    public, private = pem_files(tmp_path)
    options = {
        "pulsar__producer__cryptoPublicKeyPath": public,
        "pulsar__producer__encryptionKeys": "mine",
        "pulsar__producer__compressionType": "lz4",
        "guarantee": guarantee,
    }
    if guarantee == "effectively-once":
        options.update(txnAppId=dedup_topic.rpartition("/")[2], txnVersion="1")
    rows = [(b"secret%d" % number,) for number in range(10)]
    for _ in range(2 if guarantee == "effectively-once" else 1):
        writer = writer_for(standalone, "value binary", topic=dedup_topic, **options)
        run_task(writer, arrow_batches("value binary", rows))
    source = {"service.url": standalone.service_url, "topic": dedup_topic, "metadataColumns": ""}
    with pytest.raises(geminga.client.CryptoError, match="is encrypted"):
        read_batch(source)
    opened = read_batch({**source, "pulsar.reader.cryptoPrivateKeyPath": private})
    assert sorted(row["value"] for row in opened) == [value for (value,) in rows]


def test_large_rows_fill_entries_up_to_the_limit(standalone, official, fresh_topic) -> None:
    rows = [(bytes([number % 251]) * (number * 37 % 90_000),) for number in range(300)]
    options = {"pulsar__producer__batchingMaxBytes": "64k", "pulsar__producer__compressionType": "zstd"}
    run_task(
        writer_for(standalone, "value binary", topic=fresh_topic, **options), arrow_batches("value binary", rows, 7)
    )
    messages = stored(official, fresh_topic, 300)
    assert [(message.data(),) for message in messages] == rows
    entries = {message.message_id().entry_id() for message in messages}
    assert len(entries) >= sum(len(value) for (value,) in rows) // (64 << 10)

"""Options of the source: what they become, and what is said of those that can not be."""

from __future__ import annotations

import json
import re

import pytest

from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.foreign_options import _OF_SINKS, _OF_SOURCES
from geminga.spark.rules.metadata_columns import ALL_COLUMNS, DEFAULT_COLUMNS, check_columns
from geminga.spark.rules.option_values import OptionError, OptionValues
from geminga.spark.rules.own_topics import is_own
from geminga.spark.sink_rules.sink_options import _NAMES as options_of_sink
from geminga.spark.source_rules.ddl import parse_columns
from geminga.spark.source_rules.offsets import ReadPosition, StreamOffset
from geminga.spark.source_rules.options import _NAMES as options_of_source
from geminga.spark.source_rules.options import SourceOptions

BASE = {"service.url": "pulsar://h:1", "topic": "t"}


def parse(is_stream=True, **options):
    return SourceOptions.parse({**BASE, **options}, is_stream=is_stream)


def test_defaults_are_latest_for_a_stream_earliest_for_a_batch_and_to_fail_on_data_loss():
    stream, batch = parse(), parse(is_stream=False)
    assert stream.start == StreamOffset(init="latest")
    assert batch.start == StreamOffset(init="earliest")
    assert stream.reader.fail_on_data_loss
    assert stream.metadata_columns == DEFAULT_COLUMNS
    assert stream.subscription == ""
    assert not stream.limits.are_any


def test_names_of_options_are_read_in_any_case_as_spark_hands_them_over_in_lower_case():
    options = SourceOptions.parse(
        {"SERVICE.URL": "pulsar://h:1", "topics": "a, b,a", "maxbytespertrigger": "2m", "predefinedsubscription": "s"},
        is_stream=True,
    )
    assert options.topics.names == ("a", "b")
    assert options.max_bytes_per_trigger == 2 << 20
    assert options.subscription == "s"
    assert options.limits.bytes_max == 2 << 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topics": "u"}, "exactly one of them, topic and topics are given"),
        ({"topic": ""}, "none is given"),
        ({"service.url": ""}, "service.url: missing"),
        ({"service.url": "host:6650"}, "service.url='host:6650': expected pulsar://host:port"),
        ({"failOnDataLoss": "maybe"}, "expected true or false"),
        ({"startingOffsets": "1:2"}, "startingOffsets: "),
        ({"startingOffsets": "earliest", "startingTime": "1"}, "expected one of them"),
        ({"startingTime": "yesterday"}, "ISO 8601"),
        ({"startingTime": "1767323046"}, "that is 1970-01-21, and these look like seconds: .* such as 1767323046000"),
        ({"endingOffsets": "latest"}, "only for batch"),
        ({"maxBytesPerTrigger": "-1"}, "number of bytes"),
        ({"maxTriggerDelay": "1 fortnight"}, "duration"),
        ({"numPartitions": "x"}, "whole number"),
        ({"minPartitions": "3", "numPartitions": "2"}, "more than numPartitions"),
        ({"minMessagesPerTrigger": "3", "maxMessagesPerTrigger": "2"}, "more than maxMessagesPerTrigger"),
        ({"metadataColumns": "__key,__nothing"}, "__nothing"),
        ({"metadataColumns": "__key,__KEY"}, "each once"),
        (
            {"maxBytePerTrigger": "1m"},
            "maxBytePerTrigger: not an option of this source; did you mean maxBytesPerTrigger",
        ),
        ({"nonsense": "1"}, "nonsense: not an option of this source; see the table"),
        ({"path": "/x"}, "takes no path"),
        ({"schemaMode": "guess"}, "raw, topic, fixed"),
        ({"pulsar.client.nonsense": "1"}, "pulsar.client.nonsense: not known"),
        ({"pulsar.reader.nonsense": "1"}, "pulsar.reader.nonsense: not known"),
        ({"pulsar.reader.cryptoFailureAction": "DISCARD"}, "only FAIL"),
    ],
)
def test_option_that_can_not_be_is_named_with_what_was_expected(options, said):
    with pytest.raises(OptionError, match=said):
        parse(**options)


def test_batch_that_could_only_be_empty_is_refused():
    with pytest.raises(OptionError, match="is empty"):
        parse(is_stream=False, startingOffsets="latest")
    with pytest.raises(OptionError, match="is empty"):
        parse(is_stream=False, endingOffsets="earliest")


def test_batch_whose_bounds_are_in_each_others_place_is_refused():
    with pytest.raises(OptionError, match="endingTime is before startingTime"):
        parse(is_stream=False, startingTime="2026-01-02T00:00:00Z", endingTime="2026-01-01T00:00:00Z")
    with pytest.raises(OptionError, match=r"public/default/t: endingOffsets 4:5:0 is before startingOffsets 4:6:0"):
        parse(is_stream=False, startingOffsets='{"t":"4:6"}', endingOffsets='{"t":"4:5"}')
    parse(is_stream=False, startingOffsets='{"t":"4:6"}', endingOffsets='{"t":"4:6","u":"1:0"}')
    parse(is_stream=False, startingTime="1767323046000", endingTime="1767323046000")


def test_starts_and_ends_are_positions_times_or_names():
    options = parse(is_stream=False, startingOffsets='{"t":"1:2:3"}', endingOffsets='{"t":"4:5"}')
    assert options.start.topics == {"persistent://public/default/t": ReadPosition(1, 2, 3)}
    assert options.end == {"persistent://public/default/t": ReadPosition(4, 5, 0)}
    timed = parse(is_stream=False, startingTime="2026-01-02T03:04:05Z", endingTime="1767323046000")
    assert timed.start.init == 1767323045000
    assert (timed.reader.time_from_ms, timed.reader.time_to_ms) == (1767323045000, 1767323046000)


def test_metadata_columns_keep_their_order_and_may_be_none():
    assert parse(metadataColumns="__topic,__KEY").metadata_columns == ("__topic", "__key")
    assert parse(metadataColumns="").metadata_columns == ()
    assert check_columns(ALL_COLUMNS) == ALL_COLUMNS


def test_client_options_have_the_java_clients_names_and_units():
    configuration = ClientConfiguration.parse(
        {
            **BASE,
            "pulsar.client.operationTimeoutMs": "5",
            "pulsar.client.keepAliveIntervalSeconds": "7",
            "pulsar.client.maxBackoffIntervalNanos": "9000000",
            "pulsar.client.tlsAllowInsecureConnection": "true",
            "pulsar.client.numIoThreads": "3",
            "pulsar.client.authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "pulsar.client.authParams": "token:hidden1",
        }
    )
    assert dict(configuration.arguments) == {
        "operation_timeout_ms": 5,
        "keep_alive_interval_ms": 7000,
        "maximum_backoff_ms": 9,
        "tls_allow_insecure_connection": True,
    }
    assert configuration.auth_plugin.endswith("AuthenticationToken")
    assert configuration.auth_params == "token:hidden1"
    assert "hidden1" not in repr(configuration)


def test_client_option_of_0_or_of_nothing_is_none_of_the_least_number():
    def arguments(name: str, value: str) -> dict[str, object]:
        return dict(ClientConfiguration.parse({**BASE, f"pulsar.client.{name}": value}).arguments)

    assert arguments("memoryLimitBytes", "0") == {"memory_limit_bytes": 0}, "without a limit, as in Java"
    assert arguments("maxLookupRedirects", "0") == {"lookup_redirects_max": 0}
    assert arguments("initialBackoffIntervalNanos", "1") == {"initial_backoff_ms": 1}
    for name in ("operationTimeoutMs", "connectionTimeoutMs", "keepAliveIntervalSeconds", "connectionsPerBroker"):
        assert arguments(name, "") == {}
        with pytest.raises(OptionError, match=f"pulsar.client.{name.lower()}='0': expected a whole number, 1 or above"):
            arguments(name, "0")


def test_durations_and_sizes_have_units():
    values = OptionValues({"a": "15m", "b": "250", "c": "4 MB", "d": "2d"})
    assert [values.duration_ms("a", 0), values.duration_ms("b", 0), values.duration_ms("d", 0)] == [
        900000,
        250,
        172800000,
    ]
    assert values.size("c", 0) == 4 << 20


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("kafka.bootstrap.servers", "service.url"),
        ("subscribe", "topic or topics"),
        ("startingTimestamp", "startingTime"),
        ("maxOffsetsPerTrigger", "maxMessagesPerTrigger"),
        ("kafka.fetch.min.bytes", "pulsar.client"),
        ("serviceUrl", "service.url"),
    ],
)
def test_options_of_other_connectors_are_errors_that_name_ours(name, ours):
    with pytest.raises(OptionError, match=f"{name}: an option of another connector; use {ours}"):
        parse(**{name: "x"})


def test_advice_of_foreign_names_points_to_options_that_exist():
    for table, names in ((_OF_SOURCES, options_of_source), (_OF_SINKS, options_of_sink)):
        for foreign, advice in table.items():
            first = re.split(r"[ ,:=]", advice)[0]
            assert first == "nothing" or first in names or first.startswith(("pulsar.", "schemaMode")), foreign
            assert foreign not in {name.lower() for name in names}, foreign


@pytest.mark.parametrize(
    "topics",
    [
        {"topic": "t"},
        {"topic": "t-partition-2"},
        {"topics": "s, persistent://public/default/t"},
        {"topicsPattern": "persistent://public/default/t.*"},
        {"topicsPattern": "t|u"},
    ],
)
@pytest.mark.parametrize("is_stream", [True, False])
def test_what_does_not_fit_is_not_sent_to_where_it_is_read_for_ever(topics, is_stream):
    given = {"service.url": "pulsar://localhost:6650", "schemaMode": "topic", "badRecordsTopic": "t", **topics}
    with pytest.raises(OptionError, match="badRecordsTopic: persistent://public/default/t is read by this query"):
        SourceOptions.parse(given, is_stream=is_stream)
    SourceOptions.parse({**given, "badRecordsTopic": "bad"}, is_stream=is_stream)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"invalid": "keep"}, "invalid=keep: any payload fits schemaMode=raw"),
        ({"badRecordsTopic": "bad"}, "badRecordsTopic: any payload fits"),
        ({"schemaMode": "topic", "jsonColumns": "id long"}, "jsonColumns and schemaMode=topic"),
        ({"jsonBytes": "text"}, "only with schemaMode=topic or fixed"),
        ({"schemaMode": "topic", "jsonBytes": "hex"}, "expected one of base64, text"),
        ({"jsonColumns": "id"}, "jsonColumns: 'the end': expected a name and a type"),
        ({"jsonColumns": "id long, ID int"}, "jsonColumns: id: twice"),
        ({"jsonColumns": "id decimal(2,3)"}, "jsonColumns: decimal\\(2,3\\)"),
        ({"jsonColumns": "m map<int,int>"}, "keys of a JSON object are strings"),
        ({"schemaMode": "topic", "invalid": "keep", "badRecordsTopic": "bad"}, "expected one of them"),
        ({"schemaMode": "topic", "badRecordsTopic": "a/b"}, "badRecordsTopic: "),
        ({"schemaMode": "topic", "invalid": "drop"}, "expected one of fail, keep"),
        ({"emptyAsTombstone": "true"}, "emptyAsTombstone: only with jsonColumns"),
    ],
)
def test_options_for_what_does_not_fit_that_can_not_be_are_refused(options, said):
    with pytest.raises(OptionError, match=said):
        parse(**options)


def test_columns_of_json_are_read_as_spark_writes_them():
    columns = parse_columns("id LONG not null comment 'a, b', `a``b`: struct<x: dec(5,1), y array<int>>, z time(6)")
    assert [(name, kind.name) for name, kind in columns.items()] == [("id", "bigint"), ("a`b", "struct"), ("z", "time")]
    fields = dict(columns["a`b"].fields)
    assert (fields["x"].precision, fields["x"].scale, fields["y"].item.name) == (5, 1, "int")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id long, \\", "expected a name or a type"),
        ("id long)", "')': expected a comma, not null or comment"),
        ("id long, <", "'<': expected a name and a type"),
        ("'id' long", "expected a name and a type"),
        ("id long not none", "not: expected not null"),
        ("id long default 1", "default: a value that a message does not have is null"),
        ("id long unsigned", "'unsigned': expected a comma, not null or comment"),
        ("id long, ID int", "id: twice"),
        ("id map<int, string>", "the keys of a JSON object are strings"),
        ("id array<long", "'the end': expected >"),
        ("id 5", "'5': expected a type"),
        ("id long, item strin", "'strin': no type of Spark's; did you mean string?"),
        ("id array<uuid>", "'uuid': no type of Spark's"),
        ("id decimal(a)", "'a': expected a number of digits"),
        ("id decimal(5,6)", "decimal(5,6): expected up to 38 digits"),
        ("id " + "array<" * 100, "a type of more than"),
    ],
)
def test_columns_that_spark_does_not_write_so_are_refused_with_what_was_expected(text, said):
    with pytest.raises(ValueError) as raised:
        parse_columns(text)
    assert said in str(raised.value)


def test_a_struct_may_be_empty():
    assert parse_columns("id struct<>, n long")["id"].fields == ()


@pytest.mark.parametrize(
    ("text", "zone", "at_ms"),
    [
        ("2026-07-01T12:00:00", "Europe/Paris", 1_782_900_000_000),
        ("2026-07-01T12:00:00", "+02:00", 1_782_900_000_000),
        ("2026-07-01T12:00:00", "GMT-1", 1_782_910_800_000),
        ("2026-07-01T12:00:00", "UTC", 1_782_907_200_000),
        ("2026-07-01T12:00:00Z", "Europe/Paris", 1_782_907_200_000),
        ("2026-07-01T12:00:00+02:00", "", 1_782_900_000_000),
        ("2026-07-01+02:00", "UTC", 1_782_856_800_000),
        ("2026-07-01Z", "", 1_782_864_000_000),
    ],
)
def test_time_without_a_zone_is_one_of_the_zone_that_is_given(text, zone, at_ms):
    assert parse(startingTime=text, timeZone=zone).start.init == at_ms


def test_time_of_no_known_zone_is_refused_with_what_to_write():
    with pytest.raises(
        OptionError, match=r"of which time zone.*write 2026-07-01T00:00:00Z, 2026-07-01T00:00:00\+02:00"
    ):
        parse(startingTime="2026-07-01")
    with pytest.raises(OptionError, match="expected milliseconds since the epoch or an ISO 8601 time"):
        parse(startingTime="2026-07-01x12:00", timeZone="UTC")
    with pytest.raises(OptionError, match=r"of which time zone.*write 2026-07-01T12:00:00Z"):
        parse(startingTime="2026-07-01T12:00:00")
    with pytest.raises(OptionError, match="timeZone='Paris': expected a zone such as"):
        parse(startingTime="2026-07-01T12:00:00", timeZone="Paris")


def test_options_of_a_table_that_spark_keeps_to_itself_are_told_with_the_way_out():
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW name USING pulsar"):
        SourceOptions.for_schema({**BASE, "provider": "pulsar", "option.topic": "t"})
    with pytest.raises(OptionError, match=r"service\.url: missing.*CREATE TEMPORARY VIEW"):
        SourceOptions.parse({}, is_stream=False)


@pytest.mark.parametrize("name", ["startingTime", "numPartitions", "maxBytesPerTrigger", "pollTimeoutMs"])
@pytest.mark.parametrize("value", ["\N{SUPERSCRIPT TWO}", "9" * 19, "9" * 5000], ids=["no-digit", "19", "5000"])
def test_number_that_none_is_or_that_is_too_large_is_refused_by_name(name, value):
    with pytest.raises(OptionError, match=f"{name}=.*expected"):
        SourceOptions.parse({**BASE, name: value}, is_stream=False)
    assert SourceOptions.parse({**BASE, name: "9" * 18}, is_stream=False)


@pytest.mark.parametrize(
    "more",
    [
        {"n": "x"},
        {"n": None},
        {"c": []},
        {"c": {"a": 5}},
        {"d": {"a": []}},
        {"d": {"a": 1}},
        {"d": {"a": ["x"]}},
        {"f": "x"},
        {"s": [1]},
        {"t": {"a": "-2:0:0"}},
        {"t": {"a": "0:-2:0"}},
        {"t": {"a": f"{2**63}:0:0"}},
    ],
    ids=str,
)
def test_offset_with_a_part_that_can_not_be_is_refused_by_the_options_name(more):
    text = json.dumps({"v": 1, "t": {}, **more})
    with pytest.raises(OptionError, match="startingOffsets"):
        SourceOptions.parse({**BASE, "startingOffsets": text}, is_stream=True)


def test_offset_as_deep_as_no_offset_is_refused():
    with pytest.raises(OptionError, match="startingOffsets"):
        SourceOptions.parse({**BASE, "startingOffsets": "[" * 100_000}, is_stream=True)


def test_log_of_the_sink_is_of_no_pattern_and_of_a_name_that_says_it():
    logs = [f"persistent://public/default/__spark_commits{partition}" for partition in ("", "-partition-0")]
    others = [f"persistent://public/default/{name}" for name in ("a", "__spark_commits2", "x__spark_commits")]
    assert [is_own(topic) for topic in (*logs, *others)] == [True, True, False, False, False]
    by_pattern = SourceOptions.parse(
        {"service.url": "pulsar://h:6650", "topicsPattern": "public/default/.*"}, is_stream=True
    ).topics
    assert [by_pattern.includes(topic) for topic in (*logs, *others)] == [False, False, True, True, True]
    assert all(parse(topic="__spark_commits").topics.includes(topic) for topic in logs)


def test_positions_are_from_the_beginning_to_the_largest_number_of_64_bits():
    largest = (1 << 63) - 1
    assert ReadPosition.parse(f"{largest}:{largest}:0") == (largest, largest, 0)
    assert ReadPosition.parse("-1:-1:0") == ReadPosition.parse("earliest") == (-1, -1, 0)
    assert ReadPosition.parse("7:-1") == (7, -1, 0)

"""What the REST handlers share, as functions."""

from __future__ import annotations

import json
import zlib

import pytest

from geminga.broker.core.coercion import LONG_MAX
from geminga.broker.rest.calls.requests import NOT_FINITE, SETTING_BYTES_MAX, RestError, message_id_json, position_of
from geminga.broker.rest.topic_routes.messages import decompressed, entry_response
from geminga.broker.rest.topic_routes.subscriptions import ack_set_from
from geminga.managed_ledger import Entry
from geminga.model.errors import GemingaError, RemoteError
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compression import compress
from geminga.wire.pulsar.metadata import encode_broker_entry_metadata, encode_entry
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import ask, rest_application


def metadata(**fields) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=1_700_000_000_123, **fields)


@pytest.mark.parametrize(
    ("value", "position"),
    [
        ("latest", LATEST),
        ("earliest", EARLIEST),
        ({"ledgerId": 3, "entryId": 4}, Position(3, 4)),
        ({"ledgerId": LONG_MAX, "entryId": LONG_MAX, "partitionIndex": -1}, LATEST),
        ({"ledgerId": -1, "entryId": -1}, EARLIEST),
        ({"ledgerId": "1", "entryId": 2.0}, Position(1, 2)),
    ],
)
def test_position_is_read_from_json(value, position: Position) -> None:
    assert position_of(value) == position


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "first",
        {},
        {"ledgerId": 1},
        {"ledgerId": "one", "entryId": 2},
        {"ledgerId": True, "entryId": 2},
        {"ledgerId": 1 << 63, "entryId": 0},
        {"ledgerId": 1.5, "entryId": 0},
    ],
)
def test_position_that_is_none_is_refused(value) -> None:
    with pytest.raises(RemoteError) as caught:
        position_of(value)
    assert caught.value.http_status == 400
    assert isinstance(caught.value, GemingaError)


def test_message_id_is_written_as_pulsar_does() -> None:
    assert message_id_json(Position(1, 2), 3) == {
        "ledgerId": 1,
        "entryId": 2,
        "partitionIndex": 3,
        "batchIndex": -1,
        "batchSize": 0,
    }


@pytest.mark.parametrize(
    ("first", "size", "words"),
    [(1, 3, [0b110]), (2, 3, [0b100]), (0, 64, [-1]), (63, 64, [-(1 << 63)]), (64, 65, [0, 1]), (1, 65, [-2, 1])],
)
def test_ack_set_has_a_bit_for_each_message_to_deliver(first: int, size: int, words: list[int]) -> None:
    assert ack_set_from(first, size) == words


def test_entry_goes_out_with_its_metadata_as_headers() -> None:
    fields = metadata(
        partition_key="k",
        event_time=1_700_000_000_000,
        null_value=True,
        properties=[pb.KeyValue(key="a", value="ü")],
        num_messages_in_batch=2,
        uuid="line\nbreak",
    )
    prefix = encode_broker_entry_metadata(broker_timestamp_ms=1_700_000_001_000, index=9)
    response = entry_response(Entry(7, 8, prefix + encode_entry(fields, b"payload")))
    assert response.body == b"payload"
    headers = response.headers
    assert headers["X-Pulsar-Message-ID"] == "7:8"
    assert headers["X-Pulsar-publish-time"] == "2023-11-14T22:13:20.123Z"
    assert headers["X-Pulsar-event-time"] == "2023-11-14T22:13:20Z"
    assert headers["X-Pulsar-null-value"] == "true"
    assert headers["X-Pulsar-PROPERTY"] == '{"a": "\\u00fc"}'
    assert headers["X-Pulsar-num-batch-message"] == "2"
    assert headers["X-Pulsar-batch-size"] == "7"
    assert headers["X-Pulsar-Broker-Entry-METADATA-index"] == "9"
    assert "X-Pulsar-uuid" not in headers


def test_encrypted_entry_goes_out_as_it_is() -> None:
    fields = metadata(compression=pb.ZLIB, uncompressed_size=100)
    fields.encryption_keys.add(key="k", value=b"v")
    response = entry_response(Entry(1, 2, encode_entry(fields, b"cipher")))
    assert response.body == b"cipher"
    assert response.headers["X-Pulsar-Is-Encrypted"] == "true"


def test_damaged_entry_is_an_error() -> None:
    with pytest.raises(RestError, match="no message metadata"):
        entry_response(Entry(1, 2, b"\x0e\x01"))


@pytest.mark.parametrize("kind", [pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY])
def test_payload_is_decompressed_and_damage_is_an_error(kind: pb.CompressionType) -> None:
    data = b"x" * 1000
    assert decompressed(metadata(), data) == data
    assert decompressed(metadata(compression=kind, uncompressed_size=1000), compress(kind, data)) == data
    with pytest.raises(RestError, match="decompressed") as caught:
        decompressed(metadata(compression=kind, uncompressed_size=1000), b"junk")
    assert caught.value.http_status == 500


def test_payload_longer_than_it_says_is_an_error() -> None:
    bomb = zlib.compress(b"\0" * 10_000_000)
    with pytest.raises(RestError, match="decompressed"):
        decompressed(metadata(compression=pb.ZLIB, uncompressed_size=100), bomb)


def test_payload_that_claims_to_be_huge_is_not_decompressed() -> None:
    bomb = zlib.compress(bytes(1 << 20))
    with pytest.raises(RestError) as raised:
        decompressed(metadata(compression=pb.ZLIB, uncompressed_size=(1 << 32) - 1), bomb)
    assert raised.value.http_status == 413


def test_a_setting_is_bounded_lower_than_what_is_stored() -> None:
    """A body of 16 MB, whatever it was for, held the broker for a second and took 500 MB."""

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        large = b'{"large":"' + b"x" * SETTING_BYTES_MAX + b'"}'
        for method, path in (
            ("POST", "/admin/v2/namespaces/public/default/retention"),
            ("PUT", "/admin/v2/clusters/other"),
            ("PUT", "/admin/v2/tenants/large"),
        ):
            answer = await ask(application, method, path, large)
            assert (answer.status, answer.reason) == (413, f"the body is larger than {SETTING_BYTES_MAX} bytes")
        fields = [{"name": f"f{number}", "type": "int", "doc": "x" * 100_000} for number in range(12)]
        definition = json.dumps({"type": "record", "name": "r", "fields": fields})
        body = json.dumps({"type": "AVRO", "schema": definition, "properties": {}}).encode()
        assert len(body) > SETTING_BYTES_MAX
        answer = await ask(application, "POST", "/admin/v2/schemas/public/default/t/schema", body)
        assert answer.status == 200

    run_quietly(scenario)


NUMBERS = [
    ("POST", "/admin/v2/namespaces/public/default/persistence", '{{"managedLedgerMaxMarkDeleteRate":{0}}}'),
    ("POST", "/admin/v2/namespaces/public/default/dispatchRate", '{{"dispatchThrottlingRateInByte":{0}}}'),
    ("POST", "/admin/v2/namespaces/public/default/backlogQuota", '{{"limitSize":{0},"policy":"producer_exception"}}'),
    ("POST", "/admin/v2/namespaces/public/default/messageTTL", "{0}"),
    ("PUT", "/admin/v2/namespaces/public/default/compactionThreshold", "{0}"),
    ("PUT", "/admin/v2/namespaces/public/new", '{{"message_ttl_in_seconds":{0}}}'),
    ("PUT", "/admin/v2/namespaces/public/new", '{{"latency_stats_sample_rate":{{"standalone":{0}}}}}'),
    ("PUT", "/admin/v2/namespaces/public/new", '{{"bundles":{{"numBundles":{0}}}}}'),
    ("PUT", "/admin/v2/persistent/public/default/new/partitions", "{0}"),
    ("PUT", "/admin/v2/resourcegroups/group", '{{"publishRateInMsgs":{0}}}'),
    ("POST", "/admin/v2/resource-quotas", '{{"msgRateIn":{0}}}'),
]


@pytest.mark.parametrize(("method", "path", "body"), NUMBERS)
def test_number_that_no_double_holds_is_refused_with_what_was_expected(method: str, path: str, body: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application, before = rest_application(world.broker), world.metadata_nodes()
        for number in ("1e400", "-1e400", "NaN", "-Infinity"):
            answer = await ask(application, method, path, body.format(number).encode())
            assert (answer.status, answer.reason) == (400, NOT_FINITE)
        # As a text, or a whole number of any length, it is read by who knows what it is for.
        for number in ('"1e400"', '"NaN"', "9" * 400, "-" + "9" * 400, "1" + "0" * 5000):
            answer = await ask(application, method, path, body.format(number).encode())
            assert 400 <= answer.status < 500, (number[:20], answer)
            assert any(word in answer.reason for word in ("must be", "should be", "not JSON")), answer
        assert world.metadata_nodes() == before

    run_with_broker(scenario)

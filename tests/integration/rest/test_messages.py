"""Messages over HTTP: peek, read, find."""

from __future__ import annotations

import base64
import json

import pulsar
import pytest

from support.worlds.rest import EARLIEST, Rest, backlog_of, publish

pytestmark = pytest.mark.integration


def test_message_is_peeked_with_its_metadata(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    rest.put(f"persistent/{namespace}/t")
    rest.put(f"persistent/{namespace}/t/subscription/s", EARLIEST)
    ids = publish(client, topic, 3, producer_name="me")
    answer = rest.get(f"persistent/{namespace}/t/subscription/s/position/2")
    assert answer.body == b"m1"
    assert answer.headers["x-pulsar-message-id"] == f"{ids[1].ledger_id()}:{ids[1].entry_id()}"
    assert answer.headers["x-pulsar-producer-name"] == "me"
    assert answer.headers["x-pulsar-sequence-id"] == "1"
    assert answer.headers["x-pulsar-partition-key"] == "k"
    assert answer.headers["x-pulsar-publish-time"].startswith("20")
    assert json.loads(answer.headers["x-pulsar-property"]) == {"n": "1"}
    assert backlog_of(rest, namespace) == 3
    assert rest.get(f"persistent/{namespace}/t/subscription/s/position/4").status == 404
    assert rest.get(f"persistent/{namespace}/t/subscription/s/position/0").status == 412
    # As far as it is stored, where there is no such subscription; none is made.
    assert [rest.get(f"persistent/{namespace}/t/subscription/none/position/{n}").body for n in (1, 3)] == [b"m0", b"m2"]
    for number, status in ((4, 404), (10_001, 404), (0, 412), ("x", 404)):
        assert rest.get(f"persistent/{namespace}/t/subscription/none/position/{number}").status == status
    assert rest.get(f"persistent/{namespace}/t/subscriptions").json == ["s"]
    same = rest.get(f"persistent/{namespace}/t/ledger/{ids[1].ledger_id()}/entry/{ids[1].entry_id()}")
    assert same.body == b"m1"
    assert rest.get(f"persistent/{namespace}/t/ledger/{ids[1].ledger_id()}/entry/999").status == 404
    rest.put(f"persistent/{namespace}/p/partitions", 2)
    assert rest.get(f"persistent/{namespace}/p/subscription/s/position/1").status == 405


def test_header_has_what_a_text_can_not_carry_in_base64(rest: Rest, namespace: str, client) -> None:
    producer = client.create_producer(f"persistent://{namespace}/t", schema=pulsar.schema.StringSchema())
    producer.send("m", partition_key="schlüssel", ordering_key="o")
    headers = rest.get(f"persistent/{namespace}/t/examinemessage").headers
    version = base64.b64encode(bytes(8)).decode()
    assert headers["x-pulsar-base64-schema-version"] == version
    # What Pulsar's Java client looks for.
    assert headers["x-pulsar-base64-schema-version-b64encoded"] == version
    assert base64.b64decode(headers["x-pulsar-base64-ordering-key"]) == b"o"
    assert base64.b64decode(headers["x-pulsar-base64-partition-key"]).decode() == "schlüssel"
    assert "x-pulsar-partition-key" not in headers


def test_batch_is_peeked_whole_and_decompressed(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=1000,
        compression_type=pulsar.CompressionType.ZLib,
    )
    for index in range(3):
        producer.send_async(b"x" * 500 + b"%d" % index, None)
    producer.flush()
    rest.put(f"persistent/{namespace}/t/subscription/s", EARLIEST)
    answer = rest.get(f"persistent/{namespace}/t/subscription/s/position/1")
    assert answer.headers["x-pulsar-num-batch-message"] == "3"
    assert answer.headers["x-pulsar-compression"] == "ZLIB"
    assert answer.body.count(b"x" * 500) == 3
    assert len(answer.body) == int(answer.headers["x-pulsar-uncompressed-size"])


def test_message_id_by_time_and_last_id(rest: Rest, namespace: str, client) -> None:
    ids = publish(client, f"persistent://{namespace}/t", 3)
    first = {"ledgerId": ids[0].ledger_id(), "entryId": ids[0].entry_id()}
    assert rest.get(f"persistent/{namespace}/t/messageid/0").json == {
        **first,
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    }
    last = rest.get(f"persistent/{namespace}/t/lastMessageId").json
    assert last["entryId"] == ids[-1].entry_id()
    later = rest.get(f"persistent/{namespace}/t/messageid/99999999999999").json
    assert (later["ledgerId"], later["entryId"]) > (last["ledgerId"], last["entryId"])
    backlog = rest.get(f"persistent/{namespace}/t/backlog").json
    assert backlog["totalMessages"] == 3

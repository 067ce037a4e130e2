"""What is published over HTTP goes the way of what a connection sends."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from geminga.broker.core.coercion import VALUES_MAX
from geminga.broker.rest.message_routes import produce as produce_routes
from geminga.broker.rest.message_routes import publishing
from geminga.broker.rest.message_routes.core import avro_json
from geminga.broker.rest.message_routes.produce import BESIDE_MESSAGE_BYTES
from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import split_entry
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.ownership import OwnershipTable
from support.worlds.rest_world import ask, rest_application

PATH = "/topics/persistent/public/default/topic"
Produce = Callable[..., Awaitable[tuple[int, Any]]]


def message(payload: str, **more: Any) -> dict[str, Any]:
    return {"payload": payload, **more}


def run(scenario: Callable[[BrokerWorld, Produce], Awaitable[None]], **settings: Any) -> None:
    async def main(world: BrokerWorld) -> None:
        application = rest_application(world.broker)

        async def produce(
            *messages: dict[str, Any], path: str = PATH, headers: Mapping[str, str] | None = None, **body: Any
        ) -> tuple[int, Any]:
            answer = await ask(
                application, "POST", path, json.dumps({"messages": messages, **body}).encode(), headers=headers
            )
            return answer.status, json.loads(answer.body) if answer.body else None

        await scenario(world, produce)
        # Whatever came of it, nothing of a request stays.
        assert all(not topic.producers for topic in world.broker.registry.loaded.values())

    run_with_broker(main, **settings)


async def stored(world: BrokerWorld, name: str = TOPIC) -> list[tuple[pb.MessageMetadata, bytes]]:
    """What the topic holds, in order."""
    topic = await world.broker.registry.get(TopicName.parse(name), create=False)
    ledger = topic.ledger
    positions = [ledger.extent.readable.position_at(index) for index in range(ledger.extent.readable.entry_count)]
    found = []
    for entry in await ledger.reader.read(positions):
        metadata, start = split_entry(entry.data)
        assert metadata is not None
        found.append((metadata, entry.data[start:]))
    return found


def test_messages_are_stored_with_all_that_is_said_of_them() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        status, answer = await produce(
            message("one", key="k", properties={"a": "b"}, eventTime="1700000000000", sequenceId=7),
            message("two", disableReplication=True, deliverAt=1800000000000),
            message("AQI=", encoding="base64", replicationClusters=["east"]),
            producerName="me",
        )
        assert status == 200
        results = answer["messagePublishResults"]
        assert [one["errorCode"] for one in results] == [0, 0, 0]
        ledger, entry, partition = results[0]["messageId"].split(":")
        assert (int(entry), partition) == (0, "-1")
        assert results[2]["messageId"] == f"{ledger}:2:-1"
        assert answer["schemaVersion"] == 0
        first, second, third = await stored(world)
        assert (first[1], second[1], third[1]) == (b"one", b"two", b"\x01\x02")
        assert [one[0].sequence_id for one in (first, second, third)] == [7, 8, 9]
        assert {one[0].producer_name for one in (first, second, third)} == {"me"}
        assert (first[0].partition_key, first[0].event_time) == ("k", 1700000000000)
        assert [(pair.key, pair.value) for pair in first[0].properties] == [("a", "b")]
        assert first[0].schema_version == bytes(8)
        assert (list(second[0].replicate_to), second[0].deliver_at_time) == (["__local__"], 1800000000000)
        assert list(third[0].replicate_to) == ["east"]

    run(scenario)


def test_nothing_is_stored_where_one_of_the_messages_can_not_be() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        schema = json.dumps({"name": "", "type": "INT32", "schema": "", "properties": {}})
        status, answer = await produce(message("1"), message("x"), valueSchema=schema)
        assert status == 400
        assert "the payload of message 1 is no INT32" in answer["reason"]
        status, answer = await produce(message("y" * 101))
        assert (status, answer["reason"]) == (413, "message 0 has 101 bytes, more than maxMessageSize=100")
        for body, reason in (
            ({"messages": 3}, "messages must be a list of messages, not 3"),
            ({"messages": [{"payload": None}]}, "payload of message 0 must be a text, not nothing"),
            ({"messages": [{"payload": "a", "sequenceId": -2}]}, "sequenceId of message 0 must be 0 or more, not -2"),
            ({"messages": [], "valueSchema": "{"}, "valueSchema is not the JSON of a schema: '{'"),
            ({"messages": [], "valueSchema": {"type": "X"}}, "type of valueSchema is 'X'"),
            ({"messages": [message("a", encoding="gzip")]}, "encoding of message 0 is 'gzip'"),
        ):
            status, answer = await produce(**body)
            assert status == 400
            assert reason in answer["reason"]
        assert str(TopicName.parse(TOPIC)) not in world.broker.registry.loaded
        status, answer = await produce(message("a"), headers={"content-encoding": "gzip"})
        assert status == 415

    run(scenario, message_bytes_max=100)


def test_messages_are_refused_whose_properties_or_keys_no_frame_to_a_consumer_could_hold() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        for more in ({"properties": {"p": "x" * FRAME_PADDING_BYTES}}, {"key": "k" * FRAME_PADDING_BYTES}):
            status, answer = await produce(message("a"), message("b", **more))
            assert status == 413
            assert answer["reason"].startswith("message 1 has 10"), answer
            assert "bytes of payload, key and properties, more than consumers can be sent" in answer["reason"]
        assert str(TopicName.parse(TOPIC)) not in world.broker.registry.loaded
        # The largest that is let in, of a producer with a long name, is sent within what a client takes.
        size_bytes, taken = FRAME_PADDING_BYTES - BESIDE_MESSAGE_BYTES - 1000, False
        while not taken:
            size_bytes -= 1
            status, _ = await produce(message("b" * 100, properties={"p": "x" * size_bytes}), producerName="ä" * 500)
            taken = status == 200
        client = await world.subscriber()
        command, payload = await client.expect_with_payload(pb.BaseCommand.MESSAGE)
        lengths_bytes = 4
        frame_bytes = lengths_bytes + command.ByteSize() + len(payload)
        assert frame_bytes <= 100 + FRAME_PADDING_BYTES
        assert frame_bytes > 100 + FRAME_PADDING_BYTES - BESIDE_MESSAGE_BYTES

    run(scenario, message_bytes_max=100)


def test_producers_of_another_replicator_and_names_that_are_connected_are_refused() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        client = await world.publisher(TOPIC, producer_name="me")
        status, answer = await produce(message("a"), producerName="me")
        assert status == 409
        assert "already connected" in answer["reason"]
        assert (await produce(message("a"), producerName="pulsar.repl.east"))[0] == 412
        assert (await produce(message("a")))[0] == 200
        await client.close_producer()

    run(scenario, liveness_check_timeout_ms=0)


def test_exclusive_producer_keeps_requests_out() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        client = await world.publisher(TOPIC, producer_access_mode=pb.Exclusive)
        status, answer = await produce(message("a"))
        assert (status, "exclusive" in answer["reason"].lower()) == (409, True)
        await client.close_producer()
        assert (await produce(message("a")))[0] == 200

    run(scenario)


def test_requests_of_one_name_share_their_producer_and_keep_their_order() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        answers = await asyncio.gather(*(produce(message(f"m{number}")) for number in range(20)))
        assert {status for status, _ in answers} == {200}
        found = await stored(world)
        assert sorted(payload for _, payload in found) == sorted(b"m%d" % number for number in range(20))
        assert [metadata.sequence_id for metadata, _ in found] == list(range(20))
        assert {metadata.producer_name for metadata, _ in found} == {publishing.PRODUCER_NAME}

    run(scenario)


def test_what_deduplication_knows_is_not_stored_again_and_numbers_go_on_behind_it() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        await produce(message("a", sequenceId=5), producerName="me")
        _, answer = await produce(message("a", sequenceId=5), producerName="me")
        assert answer["messagePublishResults"][0]["messageId"] == "-1:-1:-1"
        await produce(message("b"), producerName="me")
        assert [(metadata.sequence_id, payload) for metadata, payload in await stored(world)] == [(5, b"a"), (6, b"b")]

    run(scenario, deduplication=True)


def test_messages_of_a_partitioned_topic_go_by_key_or_in_turns() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        await world.broker.administered.partitions.create(TopicName.parse(TOPIC), 3)
        _, answer = await produce(*(message(str(number), key="k") for number in range(4)))
        of_key = {one["messageId"].split(":")[2] for one in answer["messagePublishResults"]}
        # Java's hash of "k" is 107.
        assert of_key == {str(107 % 3)}
        _, answer = await produce(*(message(str(number)) for number in range(6)))
        turns = [one["messageId"].split(":")[2] for one in answer["messagePublishResults"]]
        assert sorted(turns) == ["0", "0", "1", "1", "2", "2"]
        status, answer = await produce(message("x"), path=f"{PATH}/partitions/1")
        assert answer["messagePublishResults"][0]["messageId"].endswith(":1")
        status, answer = await produce(message("x"), path=f"{PATH}/partitions/3")
        assert (status, "it has 3 partitions" in answer["reason"]) == (404, True)
        assert (await produce(message("x"), path=f"{PATH}-partition-0/partitions/0"))[0] == 400

    run(scenario)


async def turns_of(publishing: Awaitable[tuple[int, Any]]) -> int:
    """Turns that the loop makes while something is published."""
    asked = asyncio.ensure_future(publishing)
    turns = 0
    while not asked.done():
        turns += 1
        await next_turn()
    assert (await asked)[0] == 200
    return turns


def test_many_messages_and_large_ones_are_encoded_in_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served meanwhile; so they are within one message of very many values."""
    monkeypatch.setattr(produce_routes, "BYTES_A_TURN", 10_000)
    monkeypatch.setattr(avro_json, "VALUES_A_STEP", 100)
    definition = base64.b64encode(b'{"type":"array","items":"long"}').decode()
    numbers = {"valueSchema": json.dumps({"type": "AVRO", "schema": definition}), "path": f"{PATH}-numbers"}

    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        await produce(message("warm"))
        await produce(message("[]"), **numbers)
        few = await turns_of(produce(*(message("m") for _ in range(50))))
        assert await turns_of(produce(*(message("m") for _ in range(1000)))) >= few + 9
        assert await turns_of(produce(*(message("m" * 10_000) for _ in range(50)))) >= few + 40
        few = await turns_of(produce(message("[7]"), **numbers))
        many = message(json.dumps([*range(2000)]))
        assert await turns_of(produce(many, **numbers)) >= few + 19
        status, answer = await produce(*(message("m") for _ in range(10_001)))
        assert (status, answer["reason"]) == (400, "10001 messages; a request has at most 10000")

    run(scenario)


def test_json_of_very_many_values_is_refused_before_it_is_read() -> None:
    """A body of 16 MB held the broker for a second; texts of the same size do not."""
    many = f"[{','.join(['[]'] * (VALUES_MAX + 1))}]"

    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        status, answer = await produce(message("m"), more=json.loads(many))
        assert (status, answer["reason"]) == (413, f"the body has more than {VALUES_MAX} JSON values")
        as_json = {"valueSchema": json.dumps({"name": "", "type": "JSON", "schema": "", "properties": {}})}
        status, answer = await produce(message(many), **as_json)
        assert (status, answer["reason"]) == (400, f"a text of JSON has more than {VALUES_MAX} values")
        status, answer = await produce(message("," * (VALUES_MAX + 1)))
        assert (status, answer["messagePublishResults"][0]["errorCode"]) == (200, 0)
        both = json.dumps({"type": "KEY_VALUE", "schema": many, "properties": {}}).encode()
        path = "/admin/v2/schemas/public/default/many/schema"
        refused = await ask(rest_application(world.broker), "POST", path, both)
        assert (refused.status, refused.reason) == (413, f"the schema has more than {VALUES_MAX} JSON values")

    run(scenario)


def test_a_schema_is_added_once_and_a_version_of_it_is_used() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        definition = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
        encoded = base64.b64encode(json.dumps(definition).encode()).decode()
        schema = json.dumps({"name": "R", "type": "AVRO", "schema": encoded, "properties": {}})
        for _ in range(2):
            status, answer = await produce(message('{"n": -3}'), valueSchema=schema)
            assert (status, answer["schemaVersion"]) == (200, 0)
        status, answer = await produce(message('{"n": 64}'), schemaVersion=0)
        assert [payload for _, payload in await stored(world)] == [b"\x05", b"\x05", b"\x80\x01"]
        assert {metadata.schema_version for metadata, _ in await stored(world)} == {bytes(8)}
        assert (await produce(message('{"n": 64}'), schemaVersion=9))[0] == 404
        status, answer = await produce(message("text"))
        assert status == 409, "a text does not fit a topic of records"

    run(scenario)


def test_key_and_value_are_encoded_apart() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        def plain(kind: str) -> str:
            return json.dumps({"name": "", "type": kind, "schema": "", "properties": {}})

        status, _ = await produce(message("v", key="7"), keySchema=plain("INT32"), valueSchema=plain("STRING"))
        assert status == 200
        ((metadata, payload),) = await stored(world)
        assert payload == b"v"
        assert metadata.partition_key_b64_encoded
        assert base64.b64decode(metadata.partition_key) == bytes((0, 0, 0, 7))

    run(scenario)


def test_half_characters_in_texts_that_are_json_themselves_are_refused() -> None:
    """The body's own are refused where it is read; these are texts there, of six letters each."""

    def schema(kind: str, definition: str = "", **more: Any) -> str:
        return json.dumps({"type": kind, "schema": base64.b64encode(definition.encode()).decode(), **more})

    half = json.loads('"\\ud800"')
    record = schema("AVRO", '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}')
    numbers = schema("AVRO", '{"type":"map","values":"long"}')

    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        for text, body, reason in (
            (json.dumps({"a": half}), {"valueSchema": record}, "the payload of message 0 is not JSON"),
            (json.dumps({half: 1}), {"valueSchema": numbers}, "the payload of message 0 is not JSON"),
            ("a", {"valueSchema": schema("STRING", properties={half: "a"})}, "valueSchema is not the JSON of a schema"),
            ("a", {"valueSchema": schema("STRING", name=half)}, "valueSchema is not the JSON of a schema"),
            ("a", {"keySchema": schema("STRING", name=half)}, "keySchema is not the JSON of a schema"),
        ):
            status, answer = await produce(message(text, key="k"), **body)
            assert status == 400
            assert reason in answer["reason"]
        # What is kept as it is written is nobody's text here.
        record_of_json = schema("JSON", '{"type":"record","name":"R","fields":[]}')
        assert (await produce(message(json.dumps({"a": half})), valueSchema=record_of_json))[0] == 200

    run(scenario)


def test_bytes_have_no_schema() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        status, answer = await produce(message("a"), valueSchema={"type": "BYTES"})
        assert (status, answer["schemaVersion"]) == (200, -1)
        ((metadata, _),) = await stored(world)
        assert not metadata.HasField("schema_version")

    run(scenario)


def test_a_topic_that_closes_meanwhile_says_so_of_each_message() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        await produce(message("a"))
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=False)
        outlet = publishing.TopicOutlet(topic, "/peer", lambda _: None)
        named = publishing._NamedProducer()
        producer = await outlet._connected("p", named)
        waiting = asyncio.get_running_loop().create_future()
        named.waiting.append(waiting)
        producer.disconnect()
        assert "may be stored or not" in waiting.result().told

    run(scenario)


def test_requests_wait_for_a_publish_rate_and_are_refused_where_it_has_no_room() -> None:
    async def scenario(world: BrokerWorld, produce: Produce) -> None:
        clock = world.runtime.clock
        assert (await produce(message("first")))[0] == 200
        began = clock.monotonic()
        for _ in range(3):
            assert (await produce(*(message("m") for _ in range(10))))[0] == 200
        # Ten a second: each request that uses a second up waits for it, whoever sends the next.
        assert 2 <= clock.monotonic() - began <= 5
        await produce(*(message("m") for _ in range(1000)))
        status, answer = await produce(message("late"))
        assert status == 429
        assert "publish rate" in answer["reason"]

    run(scenario, publish_rate_messages=10)


def test_messages_of_a_topic_elsewhere_are_sent_to_its_owner() -> None:
    table = OwnershipTable(["a", "b"])

    async def main(world: BrokerWorld) -> None:
        table.default = "b"
        application = rest_application(world.broker)
        for path in ("", "/partitions/1"):
            if path:
                await world.resources.partitioned_topics.create(TopicName.parse(TOPIC), 2)
            answer = await ask(application, "POST", f"{PATH}{path}", b'{"messages": [{"payload": "a"}]}')
            assert answer.status == 307

    run_with_broker(main, ownership=table.brokers["a"])
